BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0002');
CREATE TABLE audit (
	id INTEGER NOT NULL, 
	at DOUBLE NOT NULL, 
	actor VARCHAR(200) NOT NULL, 
	action VARCHAR(40) NOT NULL, 
	population VARCHAR(100), 
	run VARCHAR(40), 
	round INTEGER, 
	event VARCHAR(32) NOT NULL, 
	body TEXT NOT NULL, 
	previous VARCHAR(64) NOT NULL, 
	hash VARCHAR(64) NOT NULL, 
	CONSTRAINT pk_audit PRIMARY KEY (id), 
	CONSTRAINT uq_audit_event UNIQUE (event)
);
INSERT INTO "audit" VALUES(1,1.79531980080415678024e+09,'officer','population.create','people',NULL,NULL,'f12fcb1f5d83e7b593087773ae4f5d2d','{"adjacency":"zero_out","delta":1e-06,"epsilon":4.0,"leak":8.673617379884035e-25,"salt":"392b853ea00e04e59155690cde0e45f9ac0cbf51433748b04b5be8a585b50ea3","simulated":false,"unit":"user"}','1b592890f7172284fdd291d68d60ffa7027cf421a0fb61fbd1ef16039525c12e','68a97d63044ae62fde8f9f380dbc53dcea2a1629a882d00f541c55ce5feab170');
INSERT INTO "audit" VALUES(2,1.79531980080998396871e+09,'officer','population.raise','people',NULL,NULL,'9b778406f269e88527b3f5782bea8129','{"delta":1e-06,"epsilon":5.0,"reason":"agreed on 3 May"}','68a97d63044ae62fde8f9f380dbc53dcea2a1629a882d00f541c55ce5feab170','4080cb2253dd55e33d7443c46cb0329076711e3941353b017d7f37295c9a8e50');
INSERT INTO "audit" VALUES(3,1.79531980081249713894e+09,'officer','population.create','others',NULL,NULL,'54b887c0559c911c64369221bfb21e44','{"adjacency":"add_remove","delta":1e-06,"epsilon":1.0,"leak":1e-07,"salt":"be753f98240a42e259df09720fc8a55e5d80408b0b40d7ef3445f4531e63a991","simulated":false,"unit":"user"}','4080cb2253dd55e33d7443c46cb0329076711e3941353b017d7f37295c9a8e50','3d029328fb0a89202ac5768bebbad97bcd0d6f50fe06273519e403c31ff6e29e');
INSERT INTO "audit" VALUES(4,1.79531980081814813618e+09,'officer','population.close','others',NULL,NULL,'203aa6fe14d68aeaeb505e48d70e860b','{}','3d029328fb0a89202ac5768bebbad97bcd0d6f50fe06273519e403c31ff6e29e','02a6c8b58466db295fe017b3bef48f65583340703071a103d8d5e63c556393fe');
INSERT INTO "audit" VALUES(5,1.79531980082036447528e+09,'officer','token.create',NULL,NULL,NULL,'7a2104a91d999083f5254e8fccf73123','{"digest":"d5d15c178ff2da05a4fa599ab14ed1fe06a1dbefe9ff59d85ff2f2ddc9573842","expires_at":null,"id":"bfc4c435ca26","name":"page","scopes":["read"]}','02a6c8b58466db295fe017b3bef48f65583340703071a103d8d5e63c556393fe','73ba856510330ca6f0d43185e7f4d0c53a66f3be23f75e2c7395e1c09a05f863');
INSERT INTO "audit" VALUES(6,1.79531980082193064682e+09,'officer','token.create',NULL,NULL,NULL,'5d7e1256fa41172b63a9f7199ce1d648','{"digest":"c6c61e0aa4aafd8ba6c3a329df7239e182fab9362dd50dd225c12f78491ec177","expires_at":null,"id":"9fd1cf0459b5","name":"office","scopes":["read","admin"]}','73ba856510330ca6f0d43185e7f4d0c53a66f3be23f75e2c7395e1c09a05f863','71ae1c743646ca58a2cbfc8a54a4a9888030222bb9fdd845fa1ec2a2778ad8b7');
INSERT INTO "audit" VALUES(7,1.79531980082299923899e+09,'officer','token.revoke',NULL,NULL,NULL,'d330eb37fde99a905a598e5d1288f0aa','{"id":"bfc4c435ca26"}','71ae1c743646ca58a2cbfc8a54a4a9888030222bb9fdd845fa1ec2a2778ad8b7','fc30d7159ab1505829d3066f00f0a40d119e1f604ad9f7fd324f57fc589cfd5d');
INSERT INTO "audit" VALUES(8,1.79531980082526230807e+09,'test','run.start','people','fd3e2eeda618',NULL,'53045c1be6e5d41fd6ca0cb3c0a59df6','{"format":1,"key_commitment":"71eb15457ef5e710210e154f536657178a1888a072d5063c63235123edfb4763","noise_source":"secure","plan":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","plan_digest":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","planned":"{\"mu_squared\":0.6400000000000001,\"sampled\":[]}","price":"{\"leak\":0.0,\"mu_squared\":0.6400000000000001}","rounds":3,"strategy":null,"trust_node_ids":false}','fc30d7159ab1505829d3066f00f0a40d119e1f604ad9f7fd324f57fc589cfd5d','53af6e94dc911aef99032777a9f2aeab9f71244362912c4c32e60eb37cb1b761');
INSERT INTO "audit" VALUES(9,1.7953198008319120407e+09,'run fd3e2eeda618','users.register','people','fd3e2eeda618',NULL,'c6c013c5d08a47a9dccae0dfcc4bd8f7','{"count":40,"first":0,"hashes":"4c29a26b9fcf5532bf106f0c9435522d619a05d702b99ec4da48f756ad83c815"}','53af6e94dc911aef99032777a9f2aeab9f71244362912c4c32e60eb37cb1b761','6d4c2df905e6a8626afd32056d298cf312ce33de4e4ea2477acb4fcfbaeacebe');
INSERT INTO "audit" VALUES(10,1.79531980083531212807e+09,'run fd3e2eeda618','round.open','people','fd3e2eeda618',0,'669ef914d9fa899d03af696edb913895','{"attempt":0,"cohort":"6d34f835e6ad2facc813b330ee06c8f039ddefab820d8fd5c9d7554a8af34f24","cohort_size":3,"noise_row":0}','6d4c2df905e6a8626afd32056d298cf312ce33de4e4ea2477acb4fcfbaeacebe','b4c5f1ac02213eedbdcf3214c0516732b52edc39e32dc51f424db5d094a71a75');
INSERT INTO "audit" VALUES(11,1.79531980083937025075e+09,'run fd3e2eeda618','round.commit','people','fd3e2eeda618',0,'4c7d0cff334b704786ae5513134c0516','{"attempt":0,"checkpoint":"5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9","epsilon":0.8341175486240524,"noise_row":0,"nonce":"00000000000000000000000000000000","participant_count":3,"participants":"6d34f835e6ad2facc813b330ee06c8f039ddefab820d8fd5c9d7554a8af34f24","rejects":{"nan":1},"reports":9,"spent":"{\"mu_squared\":0.04,\"sampled\":[]}","statistics":"167e0e85e91103e12971535ea824ce7b4066bfa115fb5a7fd6e171edbb2ecf39"}','b4c5f1ac02213eedbdcf3214c0516732b52edc39e32dc51f424db5d094a71a75','86966007e8f4bc6296ad0e3b56397a1f9b5c7dcf36e30cfba12ed61f52bdae5c');
INSERT INTO "audit" VALUES(12,1.79531980084262895577e+09,'run fd3e2eeda618','round.open','people','fd3e2eeda618',1,'00a1d1adf958187a648f18e4ab186870','{"attempt":0,"cohort":"e2bbd168851bb149198913ed70a0e3a4e097711896fce3f22d46cdcfbcdc8928","cohort_size":2,"noise_row":1}','86966007e8f4bc6296ad0e3b56397a1f9b5c7dcf36e30cfba12ed61f52bdae5c','c695b2df9e624a879bede3076b299e0d2af4d3bd8268bb768c5c6fb98453e4f0');
INSERT INTO "audit" VALUES(13,1.79531980084592151644e+09,'run fd3e2eeda618','round.commit','people','fd3e2eeda618',1,'fd1d7c3155475728415b52fc803a2252','{"attempt":0,"checkpoint":"6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b","epsilon":1.2119674527380742,"noise_row":1,"nonce":"01010101010101010101010101010101","participant_count":2,"participants":"e2bbd168851bb149198913ed70a0e3a4e097711896fce3f22d46cdcfbcdc8928","rejects":{"nan":1},"reports":9,"spent":"{\"mu_squared\":0.08,\"sampled\":[]}","statistics":"167e0e85e91103e12971535ea824ce7b4066bfa115fb5a7fd6e171edbb2ecf39"}','c695b2df9e624a879bede3076b299e0d2af4d3bd8268bb768c5c6fb98453e4f0','f3ba871d8e9338cdd0b51e387493f7124ca7f8114e2024082cfe7b9509f19cb8');
INSERT INTO "audit" VALUES(14,1.79531980084790229799e+09,'run fd3e2eeda618','round.open','people','fd3e2eeda618',2,'e5c7f583f7d50e657ab9e6cf2b3210b3','{"attempt":0,"cohort":"fa1c3c6acace2b51760a1764994cbef2af8aca213f79fffd5b6f2f77e293c036","cohort_size":1,"noise_row":2}','f3ba871d8e9338cdd0b51e387493f7124ca7f8114e2024082cfe7b9509f19cb8','61c03653cc8e4e4b9c0e0afb021341ef41a144aaca0530ae98b4519dad26fdaa');
INSERT INTO "audit" VALUES(15,1.79531980084985876089e+09,'run fd3e2eeda618','round.commit','people','fd3e2eeda618',2,'6945389ea02f3ec24e37884bdf3f8ed6','{"attempt":0,"checkpoint":"d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35","epsilon":1.2119674527380742,"noise_row":2,"nonce":"02020202020202020202020202020202","participant_count":1,"participants":"fa1c3c6acace2b51760a1764994cbef2af8aca213f79fffd5b6f2f77e293c036","rejects":{"nan":1},"reports":9,"spent":"{\"mu_squared\":0.08,\"sampled\":[]}","statistics":"167e0e85e91103e12971535ea824ce7b4066bfa115fb5a7fd6e171edbb2ecf39"}','61c03653cc8e4e4b9c0e0afb021341ef41a144aaca0530ae98b4519dad26fdaa','5551753f469e8554e35ca3d048f33bae5808ad1faaa527d1fab76d1b5b701049');
INSERT INTO "audit" VALUES(16,1.79531980085174679758e+09,'fd3e2eeda618','run.finish','people','fd3e2eeda618',NULL,'08dbb6fb188120f5bb76acda887ef02d','{"message":"","settled":"{\"mu_squared\":0.08,\"sampled\":[]}","spent":"{\"mu_squared\":0.08,\"sampled\":[]}","state":"done"}','5551753f469e8554e35ca3d048f33bae5808ad1faaa527d1fab76d1b5b701049','58d43a7883fdd754bcf041a9263ac8c74f2a2ec9b91ddfb760c27680914fb9ca');
INSERT INTO "audit" VALUES(17,1.79531980085510706906e+09,'test','run.start','people','1c15fa53790a',NULL,'c6740ac1ef802d1ebe2a615391f2f22f','{"format":1,"key_commitment":"19d99d35ca8e148ee5eccbc1b046b1b9b261b0213bef5e110eecf8847dfd2180","noise_source":"secure","plan":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","plan_digest":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","planned":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","price":"{\"leak\":0.0,\"mu_squared\":0.04000000000000001}","rounds":3,"strategy":null,"trust_node_ids":false}','58d43a7883fdd754bcf041a9263ac8c74f2a2ec9b91ddfb760c27680914fb9ca','47bb69db056a16ff6229600d35dbde7e1918b70bb9a01de98f7d61e839caffed');
INSERT INTO "audit" VALUES(18,1.79531980085910153385e+09,'run 1c15fa53790a','round.open','people','1c15fa53790a',0,'a2bccb123422d78f07ebf0f3789454ca','{"attempt":0,"cohort":"46d2a2090f3ec57a778cdc017b0204dd3ffc97744a7e5d4e6c789b4b600073e2","cohort_size":2,"noise_row":0}','47bb69db056a16ff6229600d35dbde7e1918b70bb9a01de98f7d61e839caffed','d31b7295ad6a2874bed54e8ad2f189177a7ba2642d64040ae1fc6deca0a68409');
INSERT INTO "audit" VALUES(19,1.79531980086079573626e+09,'run 1c15fa53790a','round.void','people','1c15fa53790a',0,'9a61774e0470c325e044400fd9aa08ff','{"attempt":0,"reason":"too few","rejects":{"shape":2},"reports":1}','d31b7295ad6a2874bed54e8ad2f189177a7ba2642d64040ae1fc6deca0a68409','175bb5266c21c3b89d995626effa02f982b043081123a143b45d60f173c8f3eb');
INSERT INTO "audit" VALUES(20,1.7953198008627002239e+09,'run 1c15fa53790a','round.open','people','1c15fa53790a',0,'1b168383ddd091b35fad2f1b33794d4c','{"attempt":1,"cohort":"32a46748a9dc0aabef51e08210130c638172505c64dbf30b8e41b121e8f9ad9c","cohort_size":2,"noise_row":0}','175bb5266c21c3b89d995626effa02f982b043081123a143b45d60f173c8f3eb','798ea0158de8480576f69185bdd74b388947254b7e7db743eac503d98e6c8c41');
INSERT INTO "audit" VALUES(21,1.7953198008658657074e+09,'run 1c15fa53790a','round.commit','people','1c15fa53790a',0,'363c1432a855a0e95af318cb540c0390','{"attempt":1,"checkpoint":"d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa","epsilon":0.8341175486240524,"noise_row":0,"nonce":"09090909090909090909090909090909","participant_count":1,"participants":"b1fe78d56a7c62bb11dc790717a621b63e48f9689da5a720564dcd0d1bfb0ecf","rejects":{},"reports":0,"spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","statistics":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}','798ea0158de8480576f69185bdd74b388947254b7e7db743eac503d98e6c8c41','7c53ce85caf2218604a4eb1357ff47634031a24b832b9ae2e42c1eb7e8aa08ec');
INSERT INTO "audit" VALUES(22,1.79531980086833381658e+09,'run 1c15fa53790a','users.register','people','1c15fa53790a',NULL,'bf4472bc838d5c9fc7d68b773c836423','{"count":10,"first":40,"hashes":"5c652f0b0935c6ef35382c10b69663781af5579b4f40d18181f8a630df27bb61"}','7c53ce85caf2218604a4eb1357ff47634031a24b832b9ae2e42c1eb7e8aa08ec','3b8196e49e6600707ab97de469c7202071c4f628005ce12fd95ff016c86915ff');
INSERT INTO "audit" VALUES(23,1.79531980087039208407e+09,'run 1c15fa53790a','round.open','people','1c15fa53790a',1,'7b0808b41bb65074a10ac7b8beb4024e','{"attempt":0,"cohort":"2745bb9e9a5bde592558d3361d9f49ca8ac3e0292421d84ae954a11a60548144","cohort_size":2,"noise_row":1}','3b8196e49e6600707ab97de469c7202071c4f628005ce12fd95ff016c86915ff','a3afc4f5e248de1967bc57ef4a9b9a5a71d9ed4c7bd2e0c4202ff9ac204a1fd2');
CREATE TABLE head (
	id INTEGER NOT NULL, 
	ledger VARCHAR(32) NOT NULL, 
	count BIGINT NOT NULL, 
	hash VARCHAR(64) NOT NULL, 
	CONSTRAINT pk_head PRIMARY KEY (id), 
	CONSTRAINT ck_head_one_row CHECK (id = 1)
);
INSERT INTO "head" VALUES(1,'fb194c6e02b5ec5d82ebb8fa8c750f2f',23,'a3afc4f5e248de1967bc57ef4a9b9a5a71d9ed4c7bd2e0c4202ff9ac204a1fd2');
CREATE TABLE leases (
	run_seq INTEGER NOT NULL, 
	holder VARCHAR(300) NOT NULL, 
	token BIGINT NOT NULL, 
	beat BIGINT NOT NULL, 
	renewed_at DOUBLE NOT NULL, 
	seconds DOUBLE NOT NULL, 
	CONSTRAINT pk_leases PRIMARY KEY (run_seq), 
	CONSTRAINT fk_leases_run_seq FOREIGN KEY(run_seq) REFERENCES runs (seq)
);
INSERT INTO "leases" VALUES(1,'',2,8,1.79531980085174679758e+09,30.0);
INSERT INTO "leases" VALUES(2,'test',1,6,1.79531980087039208407e+09,30.0);
CREATE TABLE participations (
	round_id INTEGER NOT NULL, 
	run_seq INTEGER NOT NULL, 
	"index" INTEGER NOT NULL, 
	count INTEGER NOT NULL, 
	users BLOB NOT NULL, 
	CONSTRAINT pk_participations PRIMARY KEY (round_id), 
	CONSTRAINT fk_participations_round_id FOREIGN KEY(round_id) REFERENCES rounds (id), 
	CONSTRAINT fk_participations_run_seq FOREIGN KEY(run_seq) REFERENCES runs (seq), 
	CONSTRAINT uq_participations_run_seq_index UNIQUE (run_seq, "index")
);
INSERT INTO "participations" VALUES(1,1,0,3,X'0178DA636064040000060003');
INSERT INTO "participations" VALUES(2,1,1,2,X'0178DA6362040000070004');
INSERT INTO "participations" VALUES(3,1,2,1,X'0178DA63010000050005');
INSERT INTO "participations" VALUES(5,2,0,1,X'0178DA63050000060006');
CREATE TABLE populations (
	id INTEGER NOT NULL, 
	name VARCHAR(100) NOT NULL, 
	epsilon DOUBLE NOT NULL, 
	delta DOUBLE NOT NULL, 
	adjacency VARCHAR(20) NOT NULL, 
	unit VARCHAR(100) NOT NULL, 
	simulated BOOLEAN NOT NULL, 
	state VARCHAR(20) NOT NULL, 
	salt BLOB NOT NULL, 
	users BIGINT NOT NULL, 
	settled TEXT NOT NULL, 
	created_at DOUBLE NOT NULL, 
	created_by VARCHAR(200) NOT NULL, leak DOUBLE DEFAULT '0' NOT NULL, 
	CONSTRAINT pk_populations PRIMARY KEY (id), 
	CONSTRAINT ck_populations_budget CHECK (epsilon > 0 AND delta > 0 AND delta < 1), 
	CONSTRAINT uq_populations_name UNIQUE (name)
);
INSERT INTO "populations" VALUES(1,'people',5.0,1.0e-06,'zero_out','user',0,'open',X'9B300B53F2F6AC095BFB5E6B789C04C2',50,'{"mu_squared":0.08,"sampled":[]}',1.79531980080415678024e+09,'officer',8.67361737988403508001e-25);
INSERT INTO "populations" VALUES(2,'others',1.0,1.0e-06,'add_remove','user',0,'closed',X'512365943B69EEB804848B41B6DAA1C6',0,'{"mu_squared":0.0,"sampled":[]}',1.79531980081249713894e+09,'officer',1.0e-07);
CREATE TABLE rounds (
	id INTEGER NOT NULL, 
	run_seq INTEGER NOT NULL, 
	"index" INTEGER NOT NULL, 
	attempt INTEGER NOT NULL, 
	noise_row INTEGER NOT NULL, 
	state VARCHAR(12) NOT NULL, 
	cohort BLOB, 
	cohort_size INTEGER NOT NULL, 
	reports INTEGER NOT NULL, 
	participants INTEGER NOT NULL, 
	spent TEXT, 
	epsilon DOUBLE, 
	checkpoint VARCHAR(64), 
	statistics TEXT NOT NULL, 
	rejects TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	opened_at DOUBLE NOT NULL, 
	closed_at DOUBLE, nonce VARCHAR(32), 
	CONSTRAINT pk_rounds PRIMARY KEY (id), 
	CONSTRAINT fk_rounds_run_seq FOREIGN KEY(run_seq) REFERENCES runs (seq), 
	CONSTRAINT uq_rounds_run_seq_index_attempt UNIQUE (run_seq, "index", attempt)
);
INSERT INTO "rounds" VALUES(1,1,0,0,0,'committed',NULL,3,9,3,'{"mu_squared":0.04,"sampled":[]}',8.34117548624052407291e-01,'5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9','{"accuracy":0.5}','{"nan":1}','',1.79531980083531212807e+09,1.79531980083937025075e+09,'00000000000000000000000000000000');
INSERT INTO "rounds" VALUES(2,1,1,0,1,'committed',NULL,2,9,2,'{"mu_squared":0.08,"sampled":[]}',1.21196745273807415799e+00,'6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b','{"accuracy":0.5}','{"nan":1}','',1.79531980084262895577e+09,1.79531980084592151644e+09,'01010101010101010101010101010101');
INSERT INTO "rounds" VALUES(3,1,2,0,2,'committed',NULL,1,9,1,'{"mu_squared":0.08,"sampled":[]}',1.21196745273807415799e+00,'d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35','{"accuracy":0.5}','{"nan":1}','',1.79531980084790229799e+09,1.79531980084985876089e+09,'02020202020202020202020202020202');
INSERT INTO "rounds" VALUES(4,2,0,0,0,'void',NULL,2,1,0,NULL,NULL,NULL,'{}','{"shape":2}','too few',1.79531980085910153385e+09,1.79531980086079573626e+09,NULL);
INSERT INTO "rounds" VALUES(5,2,0,1,0,'committed',NULL,2,0,1,'{"mu_squared":0.04000000000000001,"sampled":[]}',8.34117548624052407291e-01,'d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa','{}','{}','',1.7953198008627002239e+09,1.7953198008658657074e+09,'09090909090909090909090909090909');
INSERT INTO "rounds" VALUES(6,2,1,0,1,'open',X'0178DAE36004000013000A',2,0,0,NULL,NULL,NULL,'{}','{}','',1.79531980087039208407e+09,NULL,NULL);
CREATE TABLE runs (
	seq INTEGER NOT NULL, 
	id VARCHAR(40) NOT NULL, 
	population_id INTEGER NOT NULL, 
	"plan" TEXT NOT NULL, 
	plan_digest VARCHAR(128) NOT NULL, 
	rounds INTEGER NOT NULL, 
	planned TEXT NOT NULL, 
	spent TEXT NOT NULL, 
	noise_source VARCHAR(40) NOT NULL, 
	key_commitment VARCHAR(128) NOT NULL, 
	trust_node_ids BOOLEAN NOT NULL, 
	state VARCHAR(20) NOT NULL, 
	request VARCHAR(20), 
	message TEXT NOT NULL, 
	next_round INTEGER NOT NULL, 
	checkpoint VARCHAR(64), 
	started_at DOUBLE NOT NULL, 
	started_by VARCHAR(200) NOT NULL, 
	ended_at DOUBLE, price TEXT, format INTEGER DEFAULT '0' NOT NULL, strategy VARCHAR(64), 
	CONSTRAINT pk_runs PRIMARY KEY (seq), 
	CONSTRAINT fk_runs_population_id FOREIGN KEY(population_id) REFERENCES populations (id), 
	CONSTRAINT uq_runs_id UNIQUE (id)
);
INSERT INTO "runs" VALUES(1,'fd3e2eeda618',1,'{"privacy": {"adjacency": "zero_out"}, "run": {"rounds": 4}}','23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',3,'{"mu_squared":0.6400000000000001,"sampled":[]}','{"mu_squared":0.08,"sampled":[]}','secure','71eb15457ef5e710210e154f536657178a1888a072d5063c63235123edfb4763',0,'done',NULL,'',3,'d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35',1.79531980082526230807e+09,'test',1.79531980085174679758e+09,'{"leak":0.0,"mu_squared":0.6400000000000001}',1,NULL);
INSERT INTO "runs" VALUES(2,'1c15fa53790a',1,'{"privacy": {"adjacency": "zero_out"}, "run": {"rounds": 4}}','23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',3,'{"mu_squared":0.04000000000000001,"sampled":[]}','{"mu_squared":0.04000000000000001,"sampled":[]}','secure','19d99d35ca8e148ee5eccbc1b046b1b9b261b0213bef5e110eecf8847dfd2180',0,'running',NULL,'',1,'d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa',1.79531980085510706906e+09,'test',NULL,'{"leak":0.0,"mu_squared":0.04000000000000001}',1,NULL);
CREATE TABLE tokens (
	id VARCHAR(20) NOT NULL, 
	name VARCHAR(200) NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	scopes VARCHAR(100) NOT NULL, 
	created_at DOUBLE NOT NULL, 
	created_by VARCHAR(200) NOT NULL, 
	expires_at DOUBLE, 
	revoked_at DOUBLE, 
	CONSTRAINT pk_tokens PRIMARY KEY (id), 
	CONSTRAINT uq_tokens_digest UNIQUE (digest)
);
INSERT INTO "tokens" VALUES('bfc4c435ca26','page','d5d15c178ff2da05a4fa599ab14ed1fe06a1dbefe9ff59d85ff2f2ddc9573842','read',1.79531980082036447528e+09,'officer',NULL,1.79531980082299923899e+09);
INSERT INTO "tokens" VALUES('9fd1cf0459b5','office','c6c61e0aa4aafd8ba6c3a329df7239e182fab9362dd50dd225c12f78491ec177','read admin',1.79531980082193064682e+09,'officer',NULL,NULL);
CREATE TABLE users (
	population_id INTEGER NOT NULL, 
	first BIGINT NOT NULL, 
	count INTEGER NOT NULL, 
	hashes BLOB NOT NULL, 
	CONSTRAINT pk_users PRIMARY KEY (population_id, first), 
	CONSTRAINT fk_users_population_id FOREIGN KEY(population_id) REFERENCES populations (id)
);
INSERT INTO "users" VALUES(1,0,40,X'957E3DA5FAF58F4EE4EF7B3A0E2CD49A4A5017A8DD9E696A368F8CF569A26BCDE87B62C171E7DDCEF7CA77B964121F4D7FC8B70C574ED60AB7D1A3E98D31BEA69E2B798C418D7189840203335F626A1A77DF55BB0C0358C93E8A0EACE8E37183CED4035E67F465297AEEBA8C2D8E924B2B47ACC4EC90E872C2AACDBE6876A94C5FF117CF5C53BFDE5A22B56290EC0BC4856B3FF49C80DA6112D26649172866A51A877EDEDFE3997166CEE8D508C5E8343BD7E363C6C4315DDF3C73B3E98F6681550DD2E69DD3D44E3BA35E623AEFE1C47D939DCA99EBC7D166057A5759D336E2519DEB3E629B2EBE684F8062E029D03A52A0B024B206AD84D8817C1F2DEEB441B4833E0DFD8924C361F64BEF7A4961491AA10511C3AC00DE40871A3691BC8B0BB67858C10498D0B705A5D663DBED2B23EF127E0FD9311961071E899B72F740DE');
INSERT INTO "users" VALUES(1,40,10,X'8753C2D0C4A8A033C583A41C97952AA79BF90C77D4695BB182F27D7E4D6DEF795FC22471C2A968DB84A9AE62A021EC92E2ED280159E4A07BE3DBA79943B01127A1B1A5B35091487F8959A67FC15D357F');
CREATE INDEX ix_audit_population ON audit (population);
CREATE INDEX ix_audit_run ON audit (run);
CREATE INDEX ix_runs_population_id_state ON runs (population_id, state);
CREATE UNIQUE INDEX uq_runs_key ON runs (key_commitment) WHERE noise_source <> 'seeded';
CREATE UNIQUE INDEX uq_rounds_committed_noise_row ON rounds (run_seq, noise_row) WHERE state = 'committed';
CREATE UNIQUE INDEX uq_rounds_one_open ON rounds (run_seq) WHERE state = 'open';
CREATE TRIGGER audit_append BEFORE INSERT ON audit WHEN NEW.id <> (SELECT count FROM head) + 1 BEGIN SELECT RAISE(ABORT, 'the audit log only grows at its end'); END;
CREATE TRIGGER audit_keep BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER audit_stay BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER head_forward BEFORE UPDATE ON head WHEN NEW.count <> OLD.count + 1 BEGIN SELECT RAISE(ABORT, 'the audit log never gets shorter'); END;
CREATE TRIGGER head_stay BEFORE DELETE ON head BEGIN SELECT RAISE(ABORT, 'the audit log never gets shorter'); END;
CREATE TRIGGER rounds_keep BEFORE UPDATE ON rounds WHEN OLD.state <> 'open' BEGIN SELECT RAISE(ABORT, 'a closed round does not change'); END;
CREATE TRIGGER rounds_stay BEFORE DELETE ON rounds BEGIN SELECT RAISE(ABORT, 'rounds are not removed'); END;
CREATE TRIGGER participations_keep BEFORE UPDATE ON participations BEGIN SELECT RAISE(ABORT, 'participation does not change'); END;
CREATE TRIGGER participations_stay BEFORE DELETE ON participations BEGIN SELECT RAISE(ABORT, 'participation does not change'); END;
CREATE TRIGGER users_keep BEFORE UPDATE ON users BEGIN SELECT RAISE(ABORT, 'users are not renumbered'); END;
CREATE TRIGGER users_stay BEFORE DELETE ON users BEGIN SELECT RAISE(ABORT, 'users are not renumbered'); END;
CREATE UNIQUE INDEX uq_rounds_nonce ON rounds (nonce);
COMMIT;
