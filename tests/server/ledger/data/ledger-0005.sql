BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0005');
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
INSERT INTO "audit" VALUES(1,1.79542911052367877957e+09,'officer','population.create','people',NULL,NULL,'b3cfcf38e3b25be4aa4ee8f5fc45c811','{"accounting":"individual","adjacency":"zero_out","ceiling_delta":null,"ceiling_epsilon":null,"delta":1e-06,"epsilon":4.0,"leak":8.673617379884035e-25,"reservation_seconds":null,"salt":"6b49215fec98e599bb7bbbc4d6be86d7a440d372db58cfbf14137a13dbf78080","simulated":false,"two_persons":false,"unit":"user"}','a2d78d60667bdb2065c05896da446108f5309dd8a46bbe3fa92f0ae89ffc6ae1','8688cefab240541e30337b3761a2b1dad0b38e2631c054b841282439490807ed');
INSERT INTO "audit" VALUES(2,1.7954291105603227616e+09,'officer','population.raise','people',NULL,NULL,'f8f03892de916570c2c35d12aa1e8c16','{"delta":1e-06,"epsilon":5.0,"old":{"delta":1e-06,"epsilon":4.0},"reason":"agreed on 3 May"}','8688cefab240541e30337b3761a2b1dad0b38e2631c054b841282439490807ed','b62c6e56b8804f2bc7a9070affbc06c20967ba6899248d65ee0a796fd22efa23');
INSERT INTO "audit" VALUES(3,1.79542911056365418441e+09,'officer','population.create','others',NULL,NULL,'587315cde1987c0b32d838ee7ebba082','{"accounting":"worst-case","adjacency":"add_remove","ceiling_delta":null,"ceiling_epsilon":null,"delta":1e-06,"epsilon":1.0,"leak":1e-07,"reservation_seconds":null,"salt":"a35c095feb54f54de45b1ad530cdb7d18612e5568e74361ff61d5a344162b719","simulated":false,"two_persons":false,"unit":"user"}','b62c6e56b8804f2bc7a9070affbc06c20967ba6899248d65ee0a796fd22efa23','cd59940d4248045626bda41aa74c0ae05cb42f23079774975c7b366e62c44fe5');
INSERT INTO "audit" VALUES(4,1.79542911056705570219e+09,'officer','population.close','others',NULL,NULL,'62adef41baeebba5a33f6a00f5811f06','{"old":{"state":"open"},"reason":"the study is over","state":"closed"}','cd59940d4248045626bda41aa74c0ae05cb42f23079774975c7b366e62c44fe5','8175bdb98558e8d1773f745cf6395b5eddd2e7488cd4021bdabb0e313e4ae084');
INSERT INTO "audit" VALUES(5,1.79542911056844043727e+09,'officer','token.create',NULL,NULL,NULL,'71c51cc85f2cd19998129f84bd4cac63','{"digest":"564e4e9147c8c9302e82108f0ae64a5e87f7ac0c4a3cbdf9940e1c6f4779deaa","expires_at":null,"id":"b4ae68d5403c","name":"page","populations":null,"scopes":["read"]}','8175bdb98558e8d1773f745cf6395b5eddd2e7488cd4021bdabb0e313e4ae084','41de4d2e73375212d666b07133e46b85486480278457211b11108cc84a0be106');
INSERT INTO "audit" VALUES(6,1.7954291105698478222e+09,'officer','token.create',NULL,NULL,NULL,'f941d03200a0b69d6417234929ae7e28','{"digest":"918cf6019cad8229ed23b0b39e040f0b1e381941feaacabbd2977dafe53c3b6e","expires_at":null,"id":"a51e3eae5265","name":"office","populations":null,"scopes":["read","admin"]}','41de4d2e73375212d666b07133e46b85486480278457211b11108cc84a0be106','8c87c63e3ff60cbc4044bf8ab001f3a16eb1fae22f99494c85ecfcb83d69aa08');
INSERT INTO "audit" VALUES(7,1.79542911057051515584e+09,'officer','token.revoke',NULL,NULL,NULL,'74cc93042153552ce0ef007f98d323a5','{"id":"b4ae68d5403c"}','8c87c63e3ff60cbc4044bf8ab001f3a16eb1fae22f99494c85ecfcb83d69aa08','044c9e3d028e397a74d27713d6a1ff2f9093dc4bba2b9c1e30278ee60c7f3075');
INSERT INTO "audit" VALUES(8,1.79542911057487416266e+09,'test','run.start','people','a5c88d6e3f2e',NULL,'4017002172f48d7699a980c7adc998f1','{"accounting":"worst-case","format":1,"key_commitment":"95824c909cee176efad4ca90112dea4214041ea672c10076f420f159ac34019f","largest":0,"most":null,"noise_source":"secure","plan":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","plan_digest":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","planned":"{\"mu_squared\":0.6400000000000001,\"sampled\":[]}","price":"{\"leak\":0.0,\"mu_squared\":0.6400000000000001}","rounds":3,"strategy":null,"trust_node_ids":false}','044c9e3d028e397a74d27713d6a1ff2f9093dc4bba2b9c1e30278ee60c7f3075','fb685c78a530ae394e82872a063833ca5eda6833cb7f1b70d3eb4bc50c8f2e55');
INSERT INTO "audit" VALUES(9,1.79542911058121371263e+09,'run a5c88d6e3f2e','users.register','people','a5c88d6e3f2e',NULL,'f2ebb06be40389b509cc305472e69189','{"count":40,"first":0,"hashes":"34592c50fb3a5c84fb33a572be6f8d0b6edf9842c4b2bc33161e7c8394a2d858"}','fb685c78a530ae394e82872a063833ca5eda6833cb7f1b70d3eb4bc50c8f2e55','e2874353bf5e2a25fea6e84f283161593718fac4fcd407558aa446e9007fc771');
INSERT INTO "audit" VALUES(10,1.79542911058378934865e+09,'run a5c88d6e3f2e','round.open','people','a5c88d6e3f2e',0,'d683cccea4c24fc4bcc9f10746cccb5f','{"attempt":0,"cohort":"6d34f835e6ad2facc813b330ee06c8f039ddefab820d8fd5c9d7554a8af34f24","cohort_size":3,"noise_row":0}','e2874353bf5e2a25fea6e84f283161593718fac4fcd407558aa446e9007fc771','10da39bd26341aef1031d09250db390b96dba4848b64f87c3ac88248b421f2a9');
INSERT INTO "audit" VALUES(11,1.79542911058715176577e+09,'run a5c88d6e3f2e','round.commit','people','a5c88d6e3f2e',0,'cf8d13c216e1c2d70e43e77682be2c89','{"attempt":0,"checkpoint":"5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9","epsilon":0.8341175486240524,"noise_row":0,"nonce":"00000000000000000000000000000000","participant_count":3,"participants":"6d34f835e6ad2facc813b330ee06c8f039ddefab820d8fd5c9d7554a8af34f24","rejects":{"nan":1},"reports":9,"spent":"{\"mu_squared\":0.04,\"sampled\":[]}","statistics":"167e0e85e91103e12971535ea824ce7b4066bfa115fb5a7fd6e171edbb2ecf39"}','10da39bd26341aef1031d09250db390b96dba4848b64f87c3ac88248b421f2a9','1a042610f15c9ea52ee8789a958ef1afc1dbfcd008b9586f3f02afad12c25373');
INSERT INTO "audit" VALUES(12,1.79542911058992862697e+09,'run a5c88d6e3f2e','round.open','people','a5c88d6e3f2e',1,'024652fd2dbc57dc2d80b126ac129174','{"attempt":0,"cohort":"e2bbd168851bb149198913ed70a0e3a4e097711896fce3f22d46cdcfbcdc8928","cohort_size":2,"noise_row":1}','1a042610f15c9ea52ee8789a958ef1afc1dbfcd008b9586f3f02afad12c25373','d3a31f23fd382e00f5d21ffff9de1015c8ad4cd9f1d57e6a0a8978674263d4e3');
INSERT INTO "audit" VALUES(13,1.7954291105915164947e+09,'run a5c88d6e3f2e','round.commit','people','a5c88d6e3f2e',1,'707b7b5cc8f52905e617f2eaa2e55b87','{"attempt":0,"checkpoint":"6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b","epsilon":1.2119674527380742,"noise_row":1,"nonce":"01010101010101010101010101010101","participant_count":2,"participants":"e2bbd168851bb149198913ed70a0e3a4e097711896fce3f22d46cdcfbcdc8928","rejects":{"nan":1},"reports":9,"spent":"{\"mu_squared\":0.08,\"sampled\":[]}","statistics":"167e0e85e91103e12971535ea824ce7b4066bfa115fb5a7fd6e171edbb2ecf39"}','d3a31f23fd382e00f5d21ffff9de1015c8ad4cd9f1d57e6a0a8978674263d4e3','4513ba2f3ae289fed7abf286cba16c2e9c4b888a461239aca7af09394cc8c739');
INSERT INTO "audit" VALUES(14,1.7954291105928595066e+09,'run a5c88d6e3f2e','round.open','people','a5c88d6e3f2e',2,'faeaef726cd7d7d5a7820aab585f1548','{"attempt":0,"cohort":"fa1c3c6acace2b51760a1764994cbef2af8aca213f79fffd5b6f2f77e293c036","cohort_size":1,"noise_row":2}','4513ba2f3ae289fed7abf286cba16c2e9c4b888a461239aca7af09394cc8c739','78e9db797c33396b41dcb7125c54e1431a9da445d0558c9b56f886284eaf9b97');
INSERT INTO "audit" VALUES(15,1.79542911059419155119e+09,'run a5c88d6e3f2e','round.commit','people','a5c88d6e3f2e',2,'216f903628460b0420fa0bd7f1026c0d','{"attempt":0,"checkpoint":"d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35","epsilon":1.2119674527380742,"noise_row":2,"nonce":"02020202020202020202020202020202","participant_count":1,"participants":"fa1c3c6acace2b51760a1764994cbef2af8aca213f79fffd5b6f2f77e293c036","rejects":{"nan":1},"reports":9,"spent":"{\"mu_squared\":0.08,\"sampled\":[]}","statistics":"167e0e85e91103e12971535ea824ce7b4066bfa115fb5a7fd6e171edbb2ecf39"}','78e9db797c33396b41dcb7125c54e1431a9da445d0558c9b56f886284eaf9b97','6174a6b41c372c0ceca135f3f52c0b07da4cb45d62ae5479ee9850681bb8b19c');
INSERT INTO "audit" VALUES(16,1.79542911059577465059e+09,'a5c88d6e3f2e','run.finish','people','a5c88d6e3f2e',NULL,'6ee3a14b66d0a8392b4d0d0aa10b2464','{"message":"","settled":"{\"mu_squared\":0.08,\"sampled\":[]}","spent":"{\"mu_squared\":0.08,\"sampled\":[]}","state":"done"}','6174a6b41c372c0ceca135f3f52c0b07da4cb45d62ae5479ee9850681bb8b19c','a6a99b9a0a762e59cec92671f2318c54aee09d303fdc6d36f5b30a1b2d2704ed');
INSERT INTO "audit" VALUES(17,1.79542911060246920592e+09,'test','run.start','people','a8f7a8581bc7',NULL,'15f1f3398945830c859ff4b675aed369','{"accounting":"individual","format":1,"key_commitment":"a94b8dbc05341d762c2e733ba831b34a9c5c87706bab26fd297fe350f1984f60","most":274877906944,"noise_source":"secure","plan":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","plan_digest":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","planned":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","pledged":"c5b42308c71c40a6fd706d061912dee5fd7dc7cf6e9297875d6d99c049948f46","price":"{\"leak\":0.0,\"mu_squared\":0.04000000000000001}","rounds":3,"strategy":null,"trust_node_ids":false}','a6a99b9a0a762e59cec92671f2318c54aee09d303fdc6d36f5b30a1b2d2704ed','955a4d58d2b168392b813e95d60d9dc3bcbf162852f0ef869483f1538407df85');
INSERT INTO "audit" VALUES(18,1.79542911060717749597e+09,'run a8f7a8581bc7','round.open','people','a8f7a8581bc7',0,'59dd1f6cd48ed9e28c2bef0fb90093e7','{"attempt":0,"cohort":"6154364a41f7ea53392110419c0f41c6cacde2222325b006b591a7fc2a5fc127","cohort_size":2,"noise_row":0}','955a4d58d2b168392b813e95d60d9dc3bcbf162852f0ef869483f1538407df85','00a98b74834d8d4b289934390902f5961b59fc6a2a02408711c99fae3e5a15d8');
INSERT INTO "audit" VALUES(19,1.79542911060871863363e+09,'run a8f7a8581bc7','round.commit','people','a8f7a8581bc7',0,'38226a980f17ef41e07cd674cfc00d8d','{"attempt":0,"charges":"a33bb6dd8b956e03fa884326928a085e8ec24f13405fc7c28bb2432bf65cd97a","checkpoint":"6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b","epsilon":0.8341175486240524,"noise_row":0,"nonce":"07070707070707070707070707070707","participant_count":2,"participants":"6154364a41f7ea53392110419c0f41c6cacde2222325b006b591a7fc2a5fc127","rejects":{},"reports":0,"spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","statistics":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}','00a98b74834d8d4b289934390902f5961b59fc6a2a02408711c99fae3e5a15d8','6b64bacf8f8fe27c26b4d84c6f8793b60c59acdc6d555a7e83c74a680be68e7b');
INSERT INTO "audit" VALUES(20,1.79542911061052441593e+09,'a8f7a8581bc7','run.finish','people','a8f7a8581bc7',NULL,'4cde88615b22d778ce6acddd3d2d5067','{"message":"","odometers":"e03f481ac5ab3e9f5dd1c7fd6e441ad85d92d26921284e747ad913d2e9155685","settled":"{\"mu_squared\":0.12000000000000001,\"sampled\":[]}","spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","state":"stopped"}','6b64bacf8f8fe27c26b4d84c6f8793b60c59acdc6d555a7e83c74a680be68e7b','5332ff30c8d01d2a8200c88e1973213b11880c9cf24ae6f61dcb56c8dc10d5e2');
INSERT INTO "audit" VALUES(21,1.7954291106170136928e+09,'test','run.start','people','81cd8a5e72a6',NULL,'715e546548309be8f1c1f52be87c9ce5','{"accounting":"individual","format":1,"key_commitment":"925f88da1a3fca02767a4436cf14e14a6a027964b123c6a06916f75e73e748be","most":274877906944,"noise_source":"secure","plan":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","plan_digest":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","planned":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","pledged":"c5b42308c71c40a6fd706d061912dee5fd7dc7cf6e9297875d6d99c049948f46","price":"{\"leak\":0.0,\"mu_squared\":0.04000000000000001}","rounds":3,"strategy":null,"trust_node_ids":false}','5332ff30c8d01d2a8200c88e1973213b11880c9cf24ae6f61dcb56c8dc10d5e2','a56caf3eb65aaed17059d0bd8ab468bb1d05a349528c6264051cf7de9202794f');
INSERT INTO "audit" VALUES(22,1.79542911061942696577e+09,'run 81cd8a5e72a6','round.open','people','81cd8a5e72a6',0,'75cbdc28c17a35af6035d3b3a0034aa4','{"attempt":0,"cohort":"850b40c31538e69482c8b3df82007417140629ba16b38978a7ef7f05a3e21a6b","cohort_size":2,"noise_row":0}','a56caf3eb65aaed17059d0bd8ab468bb1d05a349528c6264051cf7de9202794f','fe7f1aabb6593e964cbbca51e5df4080c5c2efb364bd83139dfb0d6379aedf1f');
INSERT INTO "audit" VALUES(23,1.79542911062087917322e+09,'run 81cd8a5e72a6','round.commit','people','81cd8a5e72a6',0,'89205bffa16f892169b1ae440eb7e80b','{"attempt":0,"charges":"f976b84a6792a2ba0959787a04b09482a1b8c68d44c7aefe7751b1b66629e0dd","checkpoint":"d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35","epsilon":0.8341175486240524,"noise_row":0,"nonce":"08080808080808080808080808080808","participant_count":1,"participants":"47950c6e83377475598396d9602df2b18438d1e1193c2ddf095c2e5645f24a43","rejects":{},"reports":0,"spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","statistics":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}','fe7f1aabb6593e964cbbca51e5df4080c5c2efb364bd83139dfb0d6379aedf1f','4027876799a97ffd6a36a68df3b0c74326355297bde2739ec0bee40ac4afd0c2');
INSERT INTO "audit" VALUES(24,1.79542911062223196029e+09,'81cd8a5e72a6','run.finish','people','81cd8a5e72a6',NULL,'539671ddbd8116ce431d970fd8858d77','{"message":"","odometers":"dac4627d9fd7eb37f49d50ff28f5f8191c3b588d2dc8c314ade1cab1bdc0c992","settled":"{\"mu_squared\":0.16000000000000003,\"sampled\":[]}","spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","state":"stopped"}','4027876799a97ffd6a36a68df3b0c74326355297bde2739ec0bee40ac4afd0c2','1c6ca7c4f4230a447c7cb7ef4b46503dd3ad747d83258e9cc1e53a6e0c637a13');
INSERT INTO "audit" VALUES(25,1.79542911062722182272e+09,'trainer','charge.reserve','people',NULL,NULL,'cc390d87dcdf0f506b1f0cc05002cc83','{"key":"dp-sgd-1","largest":137438953472,"loss":"{\"mu\":0.1}","price":"{\"leak\":0.0,\"mu_squared\":0.010000000000000002}","what":"ranker","who":"trainer","why":"weekly"}','1c6ca7c4f4230a447c7cb7ef4b46503dd3ad747d83258e9cc1e53a6e0c637a13','b4a5f13e2673db27e4ff3d97185b675582178faaf5d2267d837b19984a056005');
INSERT INTO "audit" VALUES(26,1.79542911063124036789e+09,'trainer','charge.commit','people',NULL,NULL,'ec194bac9b06103b99d0ac3e44a30ff9','{"key":"dp-sgd-1"}','b4a5f13e2673db27e4ff3d97185b675582178faaf5d2267d837b19984a056005','d9088de7176724f58244469f092f908bfc6970a11aa40735641525af70622ad8');
INSERT INTO "audit" VALUES(27,1.79542911064538502699e+09,'trainer','charge.reserve','people',NULL,NULL,'7ee97a9fad36bcf8e7d6057bad812e83','{"key":"dp-sgd-2","largest":137438953472,"loss":"{\"rho\":0.001}","price":"{\"leak\":0.0,\"mu_squared\":0.0037183309503531843}","what":"ranker","who":"trainer","why":"weekly"}','d9088de7176724f58244469f092f908bfc6970a11aa40735641525af70622ad8','7a6b2da026c2805bdb48aff25c6f07cc428fe87d5edfb18d9618dd1adbb0acf6');
INSERT INTO "audit" VALUES(28,1.79542911064930462835e+09,'test','run.start','people','82d983b70516',NULL,'0091c90c7be29a0399d7f3360630c9d2','{"accounting":"individual","format":1,"key_commitment":"1581e971133c9cd3d673cd61ed5f0d47a5ebf3793aa1068c62d11ac5ef2ed4c4","most":274877906944,"noise_source":"secure","plan":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","plan_digest":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","planned":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","pledged":"c5b42308c71c40a6fd706d061912dee5fd7dc7cf6e9297875d6d99c049948f46","price":"{\"leak\":0.0,\"mu_squared\":0.04000000000000001}","rounds":3,"strategy":null,"trust_node_ids":false}','7a6b2da026c2805bdb48aff25c6f07cc428fe87d5edfb18d9618dd1adbb0acf6','76e8b46a8ed7043f1ed53f3f63ad1ea849c04169075b333708c3b999c737acdd');
INSERT INTO "audit" VALUES(29,1.79542911065181660652e+09,'run 82d983b70516','round.open','people','82d983b70516',0,'112acbdff56586ed402183308fb95b34','{"attempt":0,"cohort":"850b40c31538e69482c8b3df82007417140629ba16b38978a7ef7f05a3e21a6b","cohort_size":2,"noise_row":0}','76e8b46a8ed7043f1ed53f3f63ad1ea849c04169075b333708c3b999c737acdd','1196f1dcd0288996c21e2f7306c07325bbf0ebb38aabb7a8747154316cc452b3');
INSERT INTO "audit" VALUES(30,1.79542911065340566635e+09,'run 82d983b70516','round.commit','people','82d983b70516',0,'4455b2b278d1e398d5a8fa6dc2b2c5f0','{"attempt":0,"charges":"f976b84a6792a2ba0959787a04b09482a1b8c68d44c7aefe7751b1b66629e0dd","checkpoint":"4e07408562bedb8b60ce05c1decfe3ad16b72230967de01f640b7e4729b49fce","epsilon":0.8341175486240524,"noise_row":0,"nonce":"06060606060606060606060606060606","participant_count":1,"participants":"fa1c3c6acace2b51760a1764994cbef2af8aca213f79fffd5b6f2f77e293c036","rejects":{},"reports":0,"spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","statistics":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}','1196f1dcd0288996c21e2f7306c07325bbf0ebb38aabb7a8747154316cc452b3','6184d0640cd2300245d1f6f81eb80d26f9d08e33b1add02c34e6378899211577');
INSERT INTO "audit" VALUES(31,1.79542911065480971337e+09,'run 82d983b70516','run.interrupt','people','82d983b70516',NULL,'dafc7f1555de25ee260e911ece9106e2','{"message":""}','6184d0640cd2300245d1f6f81eb80d26f9d08e33b1add02c34e6378899211577','f6efe7858b82590ee36a36b0a79c0facd7e271798d9baf592fc1c7a5a6c57e4f');
INSERT INTO "audit" VALUES(32,1.79542911065969944001e+09,'test','run.start','people','5bce5974b4bd',NULL,'c137d7653efb03459eb84eb9ed04b18b','{"accounting":"worst-case","format":1,"key_commitment":"d860abe8c799f2e60b23a4172827b061b29a4b48ea40b67b03e090ad2de90fa2","largest":412316860416,"most":null,"noise_source":"secure","plan":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","plan_digest":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","planned":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","price":"{\"leak\":0.0,\"mu_squared\":0.04000000000000001}","rounds":3,"strategy":null,"trust_node_ids":false}','f6efe7858b82590ee36a36b0a79c0facd7e271798d9baf592fc1c7a5a6c57e4f','019da4d82e744ab8124ed75970861a109e49d4d1e0ccef4609f0cddf463a5e02');
INSERT INTO "audit" VALUES(33,1.79542911066152191166e+09,'run 5bce5974b4bd','round.open','people','5bce5974b4bd',0,'f5c9767f0381e4f26f704fa949653afd','{"attempt":0,"cohort":"46d2a2090f3ec57a778cdc017b0204dd3ffc97744a7e5d4e6c789b4b600073e2","cohort_size":2,"noise_row":0}','019da4d82e744ab8124ed75970861a109e49d4d1e0ccef4609f0cddf463a5e02','6b73ca2e20d64fbeac2e07f352f546a4ffbc2e0d093dfd2a720f1e98c29d6df9');
INSERT INTO "audit" VALUES(34,1.79542911066277527812e+09,'run 5bce5974b4bd','round.void','people','5bce5974b4bd',0,'bacd8898130a1de62e740869ddc786bf','{"attempt":0,"reason":"too few","rejects":{"shape":2},"reports":1}','6b73ca2e20d64fbeac2e07f352f546a4ffbc2e0d093dfd2a720f1e98c29d6df9','dc975ac28ada4adc153e810f6246b15f3bcf6b17f4395dfdb87021b5c4f04afd');
INSERT INTO "audit" VALUES(35,1.79542911066435551641e+09,'run 5bce5974b4bd','round.open','people','5bce5974b4bd',0,'ae34e4e69c9148dafd7fd0a5c3635cc7','{"attempt":1,"cohort":"32a46748a9dc0aabef51e08210130c638172505c64dbf30b8e41b121e8f9ad9c","cohort_size":2,"noise_row":0}','dc975ac28ada4adc153e810f6246b15f3bcf6b17f4395dfdb87021b5c4f04afd','54e8f0a1046764dcf3cbb62e3f4e57473a0b44d602f3da31c98f697bcaa30e4b');
INSERT INTO "audit" VALUES(36,1795429110.66568,'run 5bce5974b4bd','round.commit','people','5bce5974b4bd',0,'6adab2b2b4cc382b9ad003b4e77b94ae','{"attempt":1,"checkpoint":"d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa","epsilon":0.8341175486240524,"noise_row":0,"nonce":"09090909090909090909090909090909","participant_count":1,"participants":"b1fe78d56a7c62bb11dc790717a621b63e48f9689da5a720564dcd0d1bfb0ecf","rejects":{},"reports":0,"spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","statistics":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}','54e8f0a1046764dcf3cbb62e3f4e57473a0b44d602f3da31c98f697bcaa30e4b','0a1d3e3125d0f43b6b7b0095fed71f89c13734d26b7aa7527633cf73c0747b3a');
INSERT INTO "audit" VALUES(37,1.79542911066933917997e+09,'run 5bce5974b4bd','users.register','people','5bce5974b4bd',NULL,'5a3f3258277ddf1897e885ef4dff04d2','{"count":10,"first":40,"hashes":"b39fae320ac96b2a02b29eae5fb484bd2a61d3b75cdf68bcb869b0ec27163288","pledged":{"82d983b70516":274877906944}}','0a1d3e3125d0f43b6b7b0095fed71f89c13734d26b7aa7527633cf73c0747b3a','b9bdd12dbc8e2f823a5a5e47e9ce350869d2066423afbbe9515388201423b227');
INSERT INTO "audit" VALUES(38,1.79542911067093014713e+09,'run 5bce5974b4bd','round.open','people','5bce5974b4bd',1,'2cafc5c64b9eaf79d3a2289bc2e3abfb','{"attempt":0,"cohort":"2745bb9e9a5bde592558d3361d9f49ca8ac3e0292421d84ae954a11a60548144","cohort_size":2,"noise_row":1}','b9bdd12dbc8e2f823a5a5e47e9ce350869d2066423afbbe9515388201423b227','77f55dbc93de53ce139439e488f58bfe3649b52da93088856573069a0ef2d53e');
CREATE TABLE charges (
	population_id INTEGER NOT NULL, 
	"key" VARCHAR(100) NOT NULL, 
	who VARCHAR(200) NOT NULL, 
	what VARCHAR(200) NOT NULL, 
	why TEXT NOT NULL, 
	loss TEXT NOT NULL, 
	price TEXT NOT NULL, 
	state VARCHAR(12) NOT NULL, 
	reserved_at DOUBLE NOT NULL, 
	closed_at DOUBLE, 
	CONSTRAINT pk_charges PRIMARY KEY (population_id, "key"), 
	CONSTRAINT fk_charges_population_id FOREIGN KEY(population_id) REFERENCES populations (id)
);
INSERT INTO "charges" VALUES(1,'dp-sgd-1','trainer','ranker','weekly','{"mu":0.1}','{"leak":0.0,"mu_squared":0.010000000000000002}','committed',1.79542911062722182272e+09,1.79542911063124036789e+09);
INSERT INTO "charges" VALUES(1,'dp-sgd-2','trainer','ranker','weekly','{"rho":0.001}','{"leak":0.0,"mu_squared":0.0037183309503531843}','reserved',1.79542911064538502699e+09,NULL);
CREATE TABLE head (
	id INTEGER NOT NULL, 
	ledger VARCHAR(32) NOT NULL, 
	count BIGINT NOT NULL, 
	hash VARCHAR(64) NOT NULL, signed TEXT, 
	CONSTRAINT pk_head PRIMARY KEY (id), 
	CONSTRAINT ck_head_one_row CHECK (id = 1)
);
INSERT INTO "head" VALUES(1,'ac725b86c7149c86c79da7d4898fc3dd',38,'77f55dbc93de53ce139439e488f58bfe3649b52da93088856573069a0ef2d53e',NULL);
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
INSERT INTO "leases" VALUES(1,'',2,8,1.79542911059577465059e+09,30.0);
INSERT INTO "leases" VALUES(2,'',2,3,1.79542911061052441593e+09,30.0);
INSERT INTO "leases" VALUES(3,'',2,3,1.79542911062223196029e+09,30.0);
INSERT INTO "leases" VALUES(4,'',2,3,1.79542911065480971337e+09,30.0);
INSERT INTO "leases" VALUES(5,'test',1,6,1.79542911067093014713e+09,30.0);
CREATE TABLE objects (
	hash VARCHAR(64) NOT NULL, 
	content BLOB NOT NULL, 
	CONSTRAINT pk_objects PRIMARY KEY (hash)
);
INSERT INTO "objects" VALUES('6b49215fec98e599bb7bbbc4d6be86d7a440d372db58cfbf14137a13dbf78080',X'4DB4886B207E8C609EFE94ECB81C7757');
INSERT INTO "objects" VALUES('a35c095feb54f54de45b1ad530cdb7d18612e5568e74361ff61d5a344162b719',X'E99B3557AF5A174DEF87D1F91134109A');
INSERT INTO "objects" VALUES('23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',X'7B2270726976616379223A207B2261646A6163656E6379223A20227A65726F5F6F7574227D2C202272756E223A207B22726F756E6473223A20347D7D');
INSERT INTO "objects" VALUES('167e0e85e91103e12971535ea824ce7b4066bfa115fb5a7fd6e171edbb2ecf39',X'7B226163637572616379223A302E357D');
CREATE TABLE odometers (
	population_id INTEGER NOT NULL, 
	first BIGINT NOT NULL, 
	count INTEGER NOT NULL, 
	spent BLOB NOT NULL, 
	CONSTRAINT pk_odometers PRIMARY KEY (population_id, first), 
	CONSTRAINT fk_odometers_population_id FOREIGN KEY(population_id) REFERENCES populations (id)
);
INSERT INTO "odometers" VALUES(1,0,40,X'0178016360C00D14A052301AA6129D0F131F8934006AC00061');
CREATE TABLE participations (
	round_id INTEGER NOT NULL, 
	run_seq INTEGER NOT NULL, 
	"index" INTEGER NOT NULL, 
	count INTEGER NOT NULL, 
	users BLOB NOT NULL, charges BLOB, 
	CONSTRAINT pk_participations PRIMARY KEY (round_id), 
	CONSTRAINT fk_participations_round_id FOREIGN KEY(round_id) REFERENCES rounds (id), 
	CONSTRAINT fk_participations_run_seq FOREIGN KEY(run_seq) REFERENCES runs (seq), 
	CONSTRAINT uq_participations_run_seq_index UNIQUE (run_seq, "index")
);
INSERT INTO "participations" VALUES(1,1,0,3,X'0178DA636064040000060003',NULL);
INSERT INTO "participations" VALUES(2,1,1,2,X'0178DA6362040000070004',NULL);
INSERT INTO "participations" VALUES(3,1,2,1,X'0178DA63010000050005',NULL);
INSERT INTO "participations" VALUES(4,2,0,2,X'0178DA6366040000090005',X'01780163606060500062105000620002100041');
INSERT INTO "participations" VALUES(5,3,0,1,X'0178DA63030000070007',X'017801636060605000620000880021');
INSERT INTO "participations" VALUES(6,4,0,1,X'0178DA63010000050005',X'017801636060605000620000880021');
INSERT INTO "participations" VALUES(8,5,0,1,X'0178DA63050000060006',NULL);
CREATE TABLE pledges (
	run_seq INTEGER NOT NULL, 
	first BIGINT NOT NULL, 
	count INTEGER NOT NULL, 
	caps BLOB NOT NULL, 
	CONSTRAINT pk_pledges PRIMARY KEY (run_seq, first), 
	CONSTRAINT fk_pledges_run_seq FOREIGN KEY(run_seq) REFERENCES runs (seq)
);
INSERT INTO "pledges" VALUES(4,0,40,X'0178016360606070006210700093A33429E10000419A0A01');
INSERT INTO "pledges" VALUES(4,40,10,X'017801636060607000621070009394D10064500281');
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
	created_by VARCHAR(200) NOT NULL, leak DOUBLE DEFAULT '0' NOT NULL, bound_epsilon DOUBLE DEFAULT '0' NOT NULL, bound_delta DOUBLE DEFAULT '0' NOT NULL, ceiling_epsilon DOUBLE, ceiling_delta DOUBLE, reservation_seconds DOUBLE, two_persons BOOLEAN DEFAULT 0 NOT NULL, accounting VARCHAR(12) DEFAULT 'worst-case' NOT NULL, 
	CONSTRAINT pk_populations PRIMARY KEY (id), 
	CONSTRAINT ck_populations_budget CHECK (epsilon > 0 AND delta > 0 AND delta < 1), 
	CONSTRAINT uq_populations_name UNIQUE (name)
);
INSERT INTO "populations" VALUES(1,'people',5.0,1.0e-06,'zero_out','user',0,'open',X'4DB4886B207E8C609EFE94ECB81C7757',50,'{"mu_squared":0.16000000000000003,"sampled":[]}',1.79542911052367877957e+09,'officer',8.67361737988403508001e-25,5.0,1.0e-06,NULL,NULL,NULL,0,'individual');
INSERT INTO "populations" VALUES(2,'others',1.0,1.0e-06,'add_remove','user',0,'closed',X'E99B3557AF5A174DEF87D1F91134109A',0,'{"mu_squared":0.0,"sampled":[]}',1.79542911056365418441e+09,'officer',1.0e-07,1.0,1.0e-06,NULL,NULL,NULL,0,'worst-case');
CREATE TABLE proposals (
	id VARCHAR(20) NOT NULL, 
	population_id INTEGER NOT NULL, 
	epsilon DOUBLE NOT NULL, 
	delta DOUBLE NOT NULL, 
	reason TEXT NOT NULL, 
	state VARCHAR(20) NOT NULL, 
	proposed_at DOUBLE NOT NULL, 
	proposed_by VARCHAR(200) NOT NULL, 
	person VARCHAR(200) NOT NULL, 
	decided_at DOUBLE, 
	decided_by VARCHAR(200), 
	CONSTRAINT pk_proposals PRIMARY KEY (id), 
	CONSTRAINT fk_proposals_population_id FOREIGN KEY(population_id) REFERENCES populations (id)
);
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
INSERT INTO "rounds" VALUES(1,1,0,0,0,'committed',NULL,3,9,3,'{"mu_squared":0.04,"sampled":[]}',8.34117548624052407291e-01,'5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9','{"accuracy":0.5}','{"nan":1}','',1.79542911058378934865e+09,1.79542911058715176577e+09,'00000000000000000000000000000000');
INSERT INTO "rounds" VALUES(2,1,1,0,1,'committed',NULL,2,9,2,'{"mu_squared":0.08,"sampled":[]}',1.21196745273807415799e+00,'6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b','{"accuracy":0.5}','{"nan":1}','',1.79542911058992862697e+09,1.7954291105915164947e+09,'01010101010101010101010101010101');
INSERT INTO "rounds" VALUES(3,1,2,0,2,'committed',NULL,1,9,1,'{"mu_squared":0.08,"sampled":[]}',1.21196745273807415799e+00,'d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35','{"accuracy":0.5}','{"nan":1}','',1.7954291105928595066e+09,1.79542911059419155119e+09,'02020202020202020202020202020202');
INSERT INTO "rounds" VALUES(4,2,0,0,0,'committed',NULL,2,0,2,'{"mu_squared":0.04000000000000001,"sampled":[]}',8.34117548624052407291e-01,'6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b','{}','{}','',1.79542911060717749597e+09,1.79542911060871863363e+09,'07070707070707070707070707070707');
INSERT INTO "rounds" VALUES(5,3,0,0,0,'committed',NULL,2,0,1,'{"mu_squared":0.04000000000000001,"sampled":[]}',8.34117548624052407291e-01,'d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35','{}','{}','',1.79542911061942696577e+09,1.79542911062087917322e+09,'08080808080808080808080808080808');
INSERT INTO "rounds" VALUES(6,4,0,0,0,'committed',NULL,2,0,1,'{"mu_squared":0.04000000000000001,"sampled":[]}',8.34117548624052407291e-01,'4e07408562bedb8b60ce05c1decfe3ad16b72230967de01f640b7e4729b49fce','{}','{}','',1.79542911065181660652e+09,1.79542911065340566635e+09,'06060606060606060606060606060606');
INSERT INTO "rounds" VALUES(7,5,0,0,0,'void',NULL,2,1,0,NULL,NULL,NULL,'{}','{"shape":2}','too few',1.79542911066152191166e+09,1.79542911066277527812e+09,NULL);
INSERT INTO "rounds" VALUES(8,5,0,1,0,'committed',NULL,2,0,1,'{"mu_squared":0.04000000000000001,"sampled":[]}',8.34117548624052407291e-01,'d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa','{}','{}','',1.79542911066435551641e+09,1795429110.66568,'09090909090909090909090909090909');
INSERT INTO "rounds" VALUES(9,5,1,0,1,'open',X'0178DAE36004000013000A',2,0,0,NULL,NULL,NULL,'{}','{}','',1.79542911067093014713e+09,NULL,NULL);
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
	ended_at DOUBLE, price TEXT, format INTEGER DEFAULT '0' NOT NULL, strategy VARCHAR(64), accounting VARCHAR(12) DEFAULT 'worst-case' NOT NULL, most BIGINT, 
	CONSTRAINT pk_runs PRIMARY KEY (seq), 
	CONSTRAINT fk_runs_population_id FOREIGN KEY(population_id) REFERENCES populations (id), 
	CONSTRAINT uq_runs_id UNIQUE (id)
);
INSERT INTO "runs" VALUES(1,'a5c88d6e3f2e',1,'{"privacy": {"adjacency": "zero_out"}, "run": {"rounds": 4}}','23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',3,'{"mu_squared":0.6400000000000001,"sampled":[]}','{"mu_squared":0.08,"sampled":[]}','secure','95824c909cee176efad4ca90112dea4214041ea672c10076f420f159ac34019f',0,'done',NULL,'',3,'d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35',1.79542911057487416266e+09,'test',1.79542911059577465059e+09,'{"leak":0.0,"mu_squared":0.6400000000000001}',1,NULL,'worst-case',NULL);
INSERT INTO "runs" VALUES(2,'a8f7a8581bc7',1,'{"privacy": {"adjacency": "zero_out"}, "run": {"rounds": 4}}','23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',3,'{"mu_squared":0.04000000000000001,"sampled":[]}','{"mu_squared":0.04000000000000001,"sampled":[]}','secure','a94b8dbc05341d762c2e733ba831b34a9c5c87706bab26fd297fe350f1984f60',0,'stopped',NULL,'',1,'6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b',1.79542911060246920592e+09,'test',1.79542911061052441593e+09,'{"leak":0.0,"mu_squared":0.04000000000000001}',1,NULL,'individual',274877906944);
INSERT INTO "runs" VALUES(3,'81cd8a5e72a6',1,'{"privacy": {"adjacency": "zero_out"}, "run": {"rounds": 4}}','23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',3,'{"mu_squared":0.04000000000000001,"sampled":[]}','{"mu_squared":0.04000000000000001,"sampled":[]}','secure','925f88da1a3fca02767a4436cf14e14a6a027964b123c6a06916f75e73e748be',0,'stopped',NULL,'',1,'d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35',1.7954291106170136928e+09,'test',1.79542911062223196029e+09,'{"leak":0.0,"mu_squared":0.04000000000000001}',1,NULL,'individual',274877906944);
INSERT INTO "runs" VALUES(4,'82d983b70516',1,'{"privacy": {"adjacency": "zero_out"}, "run": {"rounds": 4}}','23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',3,'{"mu_squared":0.04000000000000001,"sampled":[]}','{"mu_squared":0.04000000000000001,"sampled":[]}','secure','1581e971133c9cd3d673cd61ed5f0d47a5ebf3793aa1068c62d11ac5ef2ed4c4',0,'interrupted',NULL,'',1,'4e07408562bedb8b60ce05c1decfe3ad16b72230967de01f640b7e4729b49fce',1.79542911064930462835e+09,'test',NULL,'{"leak":0.0,"mu_squared":0.04000000000000001}',1,NULL,'individual',274877906944);
INSERT INTO "runs" VALUES(5,'5bce5974b4bd',1,'{"privacy": {"adjacency": "zero_out"}, "run": {"rounds": 4}}','23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',3,'{"mu_squared":0.04000000000000001,"sampled":[]}','{"mu_squared":0.04000000000000001,"sampled":[]}','secure','d860abe8c799f2e60b23a4172827b061b29a4b48ea40b67b03e090ad2de90fa2',0,'running',NULL,'',1,'d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa',1.79542911065969944001e+09,'test',NULL,'{"leak":0.0,"mu_squared":0.04000000000000001}',1,NULL,'worst-case',NULL);
CREATE TABLE tokens (
	id VARCHAR(20) NOT NULL, 
	name VARCHAR(200) NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	scopes VARCHAR(100) NOT NULL, 
	created_at DOUBLE NOT NULL, 
	created_by VARCHAR(200) NOT NULL, 
	expires_at DOUBLE, 
	revoked_at DOUBLE, populations TEXT, 
	CONSTRAINT pk_tokens PRIMARY KEY (id), 
	CONSTRAINT uq_tokens_digest UNIQUE (digest)
);
INSERT INTO "tokens" VALUES('b4ae68d5403c','page','564e4e9147c8c9302e82108f0ae64a5e87f7ac0c4a3cbdf9940e1c6f4779deaa','read',1.79542911056844043727e+09,'officer',NULL,1.79542911057051515584e+09,NULL);
INSERT INTO "tokens" VALUES('a51e3eae5265','office','918cf6019cad8229ed23b0b39e040f0b1e381941feaacabbd2977dafe53c3b6e','read admin',1.7954291105698478222e+09,'officer',NULL,NULL,NULL);
CREATE TABLE users (
	population_id INTEGER NOT NULL, 
	first BIGINT NOT NULL, 
	count INTEGER NOT NULL, 
	hashes BLOB NOT NULL, 
	CONSTRAINT pk_users PRIMARY KEY (population_id, first), 
	CONSTRAINT fk_users_population_id FOREIGN KEY(population_id) REFERENCES populations (id)
);
INSERT INTO "users" VALUES(1,0,40,X'266B4B7239C2C37E5D6D16E6BDF09CFB2894C04FE3C17F2225202C75ECA04C7904BF1E829B2F8D0043036E28DF9112E0032DB7849902D74DC9B434742F5CFD8290F9C894F7AC04C7DC70A3E22491E7B0AD766EFCDE7F046951C19D2E3FFF827A14462DB593CF30B0D1D89C842A48CB59AF89E361D132ADB73074F05B0C20DDCF38A20077FCCCFA6A86D8615718DF3DC23E274551090AF578CAFC1584FB82C1EB48769994691ACC15F76DFBA1F01903B6D8C2CA9D4BCFBAF30DA71F871C1DCF550785CBA0CADE2721F63A914FFA3B639B2E4B4F5E721F84CA56212C6977164DEFB777CC70FF9CCA3BDD05922DAADEA5608EFE33979B02642A99635D4F15607377E26C379FB7D90C67D04473A2C318B4C392C35C23C35FC8D0372D017358917850D6F0A224B8E59C391957E9084F2DE0C1862F691D0B76E2410E5E3527EED71744');
INSERT INTO "users" VALUES(1,40,10,X'E677C87EB9BD8FC91DAC6D9B9F5D71742E480E5767FFF77D3C4F7886C2DE055428CFB0E52DFE75D684108E17C4BDAF843F29A9AE51241195AE7244621AA80E9D5EB045618E8F5E76B4E717EDDBDB5338');
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
CREATE TRIGGER participations_stay BEFORE DELETE ON participations BEGIN SELECT RAISE(ABORT, 'participation does not change'); END;
CREATE TRIGGER users_keep BEFORE UPDATE ON users BEGIN SELECT RAISE(ABORT, 'users are not renumbered'); END;
CREATE TRIGGER users_stay BEFORE DELETE ON users BEGIN SELECT RAISE(ABORT, 'users are not renumbered'); END;
CREATE UNIQUE INDEX uq_rounds_nonce ON rounds (nonce);
CREATE INDEX ix_audit_tokens ON audit (id) WHERE action IN ('token.create', 'token.revoke');
CREATE TRIGGER participations_keep BEFORE UPDATE ON participations WHEN OLD.charges IS NOT NULL OR NEW."round_id" <> OLD."round_id" OR NEW."run_seq" <> OLD."run_seq" OR NEW."index" <> OLD."index" OR NEW."count" <> OLD."count" OR NEW."users" <> OLD."users" BEGIN SELECT RAISE(ABORT, 'participation does not change'); END;
CREATE TRIGGER objects_update BEFORE UPDATE ON objects BEGIN SELECT RAISE(ABORT, 'objects are append-only'); END;
CREATE TRIGGER objects_delete BEFORE DELETE ON objects BEGIN SELECT RAISE(ABORT, 'objects are append-only'); END;
COMMIT;
