BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0004');
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
INSERT INTO "audit" VALUES(1,1.79533068301905584336e+09,'officer','population.create','people',NULL,NULL,'e0947da65a2eee9d1ba030e3a2728ec2','{"accounting":"individual","adjacency":"zero_out","ceiling_delta":null,"ceiling_epsilon":null,"delta":1e-06,"epsilon":4.0,"leak":8.673617379884035e-25,"reservation_seconds":null,"salt":"578ee0dade704511b01ec3f7dbd9e9fff49836214116e3a20042cbf928788433","simulated":false,"two_persons":false,"unit":"user"}','a35178e91c231bf7ede19a9b95129ffeccef888e7eb2a432822d79e2ce2a7d77','1593f369f9a63047a5061cea68f558f3e4bfd4c42a6a862fc80fb18130b8fa2a');
INSERT INTO "audit" VALUES(2,1.79533068310013246534e+09,'officer','population.raise','people',NULL,NULL,'dc8c3b472d1400f0ab73e9c8023f2a67','{"delta":1e-06,"epsilon":5.0,"old":{"delta":1e-06,"epsilon":4.0},"reason":"agreed on 3 May"}','1593f369f9a63047a5061cea68f558f3e4bfd4c42a6a862fc80fb18130b8fa2a','bb91c8418a9385ffd3d011c8da1f1c30c6751c373df52751579ec9ab15911667');
INSERT INTO "audit" VALUES(3,1.79533068310851120943e+09,'officer','population.create','others',NULL,NULL,'d406fc59bf1d7d9a11435ad736a2cc49','{"accounting":"worst-case","adjacency":"add_remove","ceiling_delta":null,"ceiling_epsilon":null,"delta":1e-06,"epsilon":1.0,"leak":1e-07,"reservation_seconds":null,"salt":"b7bea83acb352a85b3fb065b192d35bf697ca8b058fb3ac530fd2f9c9236c9b7","simulated":false,"two_persons":false,"unit":"user"}','bb91c8418a9385ffd3d011c8da1f1c30c6751c373df52751579ec9ab15911667','0beb2116511727d535d44b3d0bea5c3ee4509f7f643bdcda15bd11710f3d6137');
INSERT INTO "audit" VALUES(4,1.79533068312008452409e+09,'officer','population.close','others',NULL,NULL,'d31b4cdfcc3b30546b07963104702912','{"old":{"state":"open"},"reason":"the study is over","state":"closed"}','0beb2116511727d535d44b3d0bea5c3ee4509f7f643bdcda15bd11710f3d6137','93748e7b563e4ec2b469f0ec04e4ded0040b8c1ec58cec45ae240fba5ae3b99b');
INSERT INTO "audit" VALUES(5,1.79533068313130235674e+09,'officer','token.create',NULL,NULL,NULL,'a5d82dc3ad39276476f57ce4df21322a','{"digest":"55a15ab9c8f21cd233600d036c4b1860d8b2974d0c5bdd31cb1e2364be9472c3","expires_at":null,"id":"68d53d321010","name":"page","populations":null,"scopes":["read"]}','93748e7b563e4ec2b469f0ec04e4ded0040b8c1ec58cec45ae240fba5ae3b99b','0469a0666e4e7080bb0673df6e825c2693a2c446bb17db271f01bb3c9a130749');
INSERT INTO "audit" VALUES(6,1.79533068313818979259e+09,'officer','token.create',NULL,NULL,NULL,'00bf714bd889e3d4696e7d20d22d5eb9','{"digest":"64028e07e64e5c04a8bc16e5ce94ec73a71beb3d51e52d5ff6caf1c9f42a278b","expires_at":null,"id":"a314916dfbaf","name":"office","populations":null,"scopes":["read","admin"]}','0469a0666e4e7080bb0673df6e825c2693a2c446bb17db271f01bb3c9a130749','7119a5d422d9fa4af68b48ad8907fcdabc0901ebd7f5221bee752d553da28afc');
INSERT INTO "audit" VALUES(7,1.79533068314207077025e+09,'officer','token.revoke',NULL,NULL,NULL,'d8c9e07a0f9f9815a975a1cc73acd462','{"id":"68d53d321010"}','7119a5d422d9fa4af68b48ad8907fcdabc0901ebd7f5221bee752d553da28afc','c4e702ae62eaa709fd4659272001e37257504f785cd46c85ea07373522abf698');
INSERT INTO "audit" VALUES(8,1.79533068315175056454e+09,'test','run.start','people','03d92f86a6a8',NULL,'39c0a463e4963f890284728fe1ad450a','{"accounting":"worst-case","format":1,"key_commitment":"10b432866871159ecd28ebf51122610efdf4bf9ecd8ac50a35d479ac68f32be5","largest":0,"most":null,"noise_source":"secure","plan":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","plan_digest":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","planned":"{\"mu_squared\":0.6400000000000001,\"sampled\":[]}","price":"{\"leak\":0.0,\"mu_squared\":0.6400000000000001}","rounds":3,"strategy":null,"trust_node_ids":false}','c4e702ae62eaa709fd4659272001e37257504f785cd46c85ea07373522abf698','54c9aeec02948461a7ea42dea0bf9f568adfce1e908e5afacb35602fc443b8fa');
INSERT INTO "audit" VALUES(9,1.79533068316657447817e+09,'run 03d92f86a6a8','users.register','people','03d92f86a6a8',NULL,'9ab83fa29583130ecb5a1b0fa2168f6b','{"count":40,"first":0,"hashes":"75fade7ddcb005f1b0fc165dfaa31ffce08de8aee5c5aa3a9be245c80f04fb0a"}','54c9aeec02948461a7ea42dea0bf9f568adfce1e908e5afacb35602fc443b8fa','7210fe784734e4cf8a024c91ee0e7ef093c399722684892a13f198718c7f5b23');
INSERT INTO "audit" VALUES(10,1.79533068317657256126e+09,'run 03d92f86a6a8','round.open','people','03d92f86a6a8',0,'14a374597ef990384feca7c34fd2f4bf','{"attempt":0,"cohort":"6d34f835e6ad2facc813b330ee06c8f039ddefab820d8fd5c9d7554a8af34f24","cohort_size":3,"noise_row":0}','7210fe784734e4cf8a024c91ee0e7ef093c399722684892a13f198718c7f5b23','0dc4406c2796cb2579788268dea9ac714dfa14b70fa516f45390fb621ad895fc');
INSERT INTO "audit" VALUES(11,1.79533068318776321413e+09,'run 03d92f86a6a8','round.commit','people','03d92f86a6a8',0,'dbb3aa41d149a5a55e303de45af1d36b','{"attempt":0,"checkpoint":"5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9","epsilon":0.8341175486240524,"noise_row":0,"nonce":"00000000000000000000000000000000","participant_count":3,"participants":"6d34f835e6ad2facc813b330ee06c8f039ddefab820d8fd5c9d7554a8af34f24","rejects":{"nan":1},"reports":9,"spent":"{\"mu_squared\":0.04,\"sampled\":[]}","statistics":"167e0e85e91103e12971535ea824ce7b4066bfa115fb5a7fd6e171edbb2ecf39"}','0dc4406c2796cb2579788268dea9ac714dfa14b70fa516f45390fb621ad895fc','1957f153d9f1795f25e013bba1c6f2853aa58e2bf0d79ab29eaa7cfc41cd05f5');
INSERT INTO "audit" VALUES(12,1.79533068319931697846e+09,'run 03d92f86a6a8','round.open','people','03d92f86a6a8',1,'756147354e4cbf27d1aac0c9cef94a72','{"attempt":0,"cohort":"e2bbd168851bb149198913ed70a0e3a4e097711896fce3f22d46cdcfbcdc8928","cohort_size":2,"noise_row":1}','1957f153d9f1795f25e013bba1c6f2853aa58e2bf0d79ab29eaa7cfc41cd05f5','f9130b7d4ec53f30cca65071e724ff3efa805b72d5e6c15eff9ae6a3aa151b46');
INSERT INTO "audit" VALUES(13,1.7953306832076814175e+09,'run 03d92f86a6a8','round.commit','people','03d92f86a6a8',1,'a6374849461430ab59f81f10aa6bbe95','{"attempt":0,"checkpoint":"6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b","epsilon":1.2119674527380742,"noise_row":1,"nonce":"01010101010101010101010101010101","participant_count":2,"participants":"e2bbd168851bb149198913ed70a0e3a4e097711896fce3f22d46cdcfbcdc8928","rejects":{"nan":1},"reports":9,"spent":"{\"mu_squared\":0.08,\"sampled\":[]}","statistics":"167e0e85e91103e12971535ea824ce7b4066bfa115fb5a7fd6e171edbb2ecf39"}','f9130b7d4ec53f30cca65071e724ff3efa805b72d5e6c15eff9ae6a3aa151b46','059fd069d67a0ba1d3fe0a6bcce7b9eabc1f9e13ba77a0897c0f16d86ceb7371');
INSERT INTO "audit" VALUES(14,1.79533068321324110029e+09,'run 03d92f86a6a8','round.open','people','03d92f86a6a8',2,'86d49674a22186c68f57a4267dc2f777','{"attempt":0,"cohort":"fa1c3c6acace2b51760a1764994cbef2af8aca213f79fffd5b6f2f77e293c036","cohort_size":1,"noise_row":2}','059fd069d67a0ba1d3fe0a6bcce7b9eabc1f9e13ba77a0897c0f16d86ceb7371','11a7ad395d04fcf1bc821350658db00630ddcbe392bb37e6704e45073e1d2ab4');
INSERT INTO "audit" VALUES(15,1.79533068321842241284e+09,'run 03d92f86a6a8','round.commit','people','03d92f86a6a8',2,'c56f19095061916cf458f7949ae6d7dc','{"attempt":0,"checkpoint":"d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35","epsilon":1.2119674527380742,"noise_row":2,"nonce":"02020202020202020202020202020202","participant_count":1,"participants":"fa1c3c6acace2b51760a1764994cbef2af8aca213f79fffd5b6f2f77e293c036","rejects":{"nan":1},"reports":9,"spent":"{\"mu_squared\":0.08,\"sampled\":[]}","statistics":"167e0e85e91103e12971535ea824ce7b4066bfa115fb5a7fd6e171edbb2ecf39"}','11a7ad395d04fcf1bc821350658db00630ddcbe392bb37e6704e45073e1d2ab4','ba57a29e0b31aab032738f5f349bc9c705c66f1f08347f15f0517e5a21f843ad');
INSERT INTO "audit" VALUES(16,1.79533068322217130661e+09,'03d92f86a6a8','run.finish','people','03d92f86a6a8',NULL,'792de14a92c048d2b02aa05c6e964769','{"message":"","settled":"{\"mu_squared\":0.08,\"sampled\":[]}","spent":"{\"mu_squared\":0.08,\"sampled\":[]}","state":"done"}','ba57a29e0b31aab032738f5f349bc9c705c66f1f08347f15f0517e5a21f843ad','4b1a5125f03eaac57b04d8510851ddb34d4796f27cc5da27324c3ff3b1db23a1');
INSERT INTO "audit" VALUES(17,1.79533068323796892165e+09,'test','run.start','people','8efa36c467cd',NULL,'9c915f0afd8e827320a4ae007419a9ef','{"accounting":"individual","format":1,"key_commitment":"7d5cad34059cac6a8fecd7e22589d4d72f46f969802133e25f2aae5551a0d5df","most":274877906944,"noise_source":"secure","plan":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","plan_digest":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","planned":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","pledged":"c5b42308c71c40a6fd706d061912dee5fd7dc7cf6e9297875d6d99c049948f46","price":"{\"leak\":0.0,\"mu_squared\":0.04000000000000001}","rounds":3,"strategy":null,"trust_node_ids":false}','4b1a5125f03eaac57b04d8510851ddb34d4796f27cc5da27324c3ff3b1db23a1','9a18d12ccf716b8e607da7a6e9b6315e6a48581d3f54e090e36c8ad2222d4bf1');
INSERT INTO "audit" VALUES(18,1.79533068325224375721e+09,'run 8efa36c467cd','round.open','people','8efa36c467cd',0,'cecd53420b68cc928347142e0ab15c5c','{"attempt":0,"cohort":"6154364a41f7ea53392110419c0f41c6cacde2222325b006b591a7fc2a5fc127","cohort_size":2,"noise_row":0}','9a18d12ccf716b8e607da7a6e9b6315e6a48581d3f54e090e36c8ad2222d4bf1','48bf357658b050f816e26054c2c81bbd649bba8a45757d5bd89a45a4bb7aab6c');
INSERT INTO "audit" VALUES(19,1.79533068325970458986e+09,'run 8efa36c467cd','round.commit','people','8efa36c467cd',0,'130ee8861eb483f20ad28ee3e8b9bfe6','{"attempt":0,"charges":"a33bb6dd8b956e03fa884326928a085e8ec24f13405fc7c28bb2432bf65cd97a","checkpoint":"6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b","epsilon":0.8341175486240524,"noise_row":0,"nonce":"07070707070707070707070707070707","participant_count":2,"participants":"6154364a41f7ea53392110419c0f41c6cacde2222325b006b591a7fc2a5fc127","rejects":{},"reports":0,"spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","statistics":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}','48bf357658b050f816e26054c2c81bbd649bba8a45757d5bd89a45a4bb7aab6c','f4bd00a11149ced94d1e7348ef24f41b5bac306800aa635034f5d4a430ef9b63');
INSERT INTO "audit" VALUES(20,1.7953306832632832527e+09,'8efa36c467cd','run.finish','people','8efa36c467cd',NULL,'1aa9f021e3a47c3bec056356b31211db','{"message":"","odometers":"e03f481ac5ab3e9f5dd1c7fd6e441ad85d92d26921284e747ad913d2e9155685","settled":"{\"mu_squared\":0.12000000000000001,\"sampled\":[]}","spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","state":"stopped"}','f4bd00a11149ced94d1e7348ef24f41b5bac306800aa635034f5d4a430ef9b63','93e17ccbe9fc38e275b68047eccbbb6684d25f65fa8f64c7cb34684ef082b4f7');
INSERT INTO "audit" VALUES(21,1.79533068327977943417e+09,'test','run.start','people','3fc54ae7d030',NULL,'781668040e3294e062a4b3691911b7a8','{"accounting":"individual","format":1,"key_commitment":"ae36a53600e8dcfe535336281861a6b7bea7b939eebe13facca1136412d0e692","most":274877906944,"noise_source":"secure","plan":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","plan_digest":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","planned":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","pledged":"c5b42308c71c40a6fd706d061912dee5fd7dc7cf6e9297875d6d99c049948f46","price":"{\"leak\":0.0,\"mu_squared\":0.04000000000000001}","rounds":3,"strategy":null,"trust_node_ids":false}','93e17ccbe9fc38e275b68047eccbbb6684d25f65fa8f64c7cb34684ef082b4f7','84312e62bcb52ffac574521899a7ac6addd944ba02f2178846b7c689de51b915');
INSERT INTO "audit" VALUES(22,1.7953306832874720096e+09,'run 3fc54ae7d030','round.open','people','3fc54ae7d030',0,'3b09ab21a74d01e4bec77f248cd19206','{"attempt":0,"cohort":"850b40c31538e69482c8b3df82007417140629ba16b38978a7ef7f05a3e21a6b","cohort_size":2,"noise_row":0}','84312e62bcb52ffac574521899a7ac6addd944ba02f2178846b7c689de51b915','844671da163db81f95a7776b193fa651cc86d216795c64a69fdd70ed4d7a8210');
INSERT INTO "audit" VALUES(23,1.79533068329844260222e+09,'run 3fc54ae7d030','round.commit','people','3fc54ae7d030',0,'a5e7365dcfa5e92d8fae3b4c1e6eec09','{"attempt":0,"charges":"f976b84a6792a2ba0959787a04b09482a1b8c68d44c7aefe7751b1b66629e0dd","checkpoint":"d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35","epsilon":0.8341175486240524,"noise_row":0,"nonce":"08080808080808080808080808080808","participant_count":1,"participants":"47950c6e83377475598396d9602df2b18438d1e1193c2ddf095c2e5645f24a43","rejects":{},"reports":0,"spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","statistics":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}','844671da163db81f95a7776b193fa651cc86d216795c64a69fdd70ed4d7a8210','746124845988b09a565f05b27752f9e02574d809dbbd4b6486cf212dda129cc7');
INSERT INTO "audit" VALUES(24,1.79533068330221605305e+09,'3fc54ae7d030','run.finish','people','3fc54ae7d030',NULL,'0440722e813fe1396283a5f43ef6347b','{"message":"","odometers":"dac4627d9fd7eb37f49d50ff28f5f8191c3b588d2dc8c314ade1cab1bdc0c992","settled":"{\"mu_squared\":0.16000000000000003,\"sampled\":[]}","spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","state":"stopped"}','746124845988b09a565f05b27752f9e02574d809dbbd4b6486cf212dda129cc7','a5df1084c1a443c8bd7d6a488f8175e53ebada2969e142f7293b231fb5d45373');
INSERT INTO "audit" VALUES(25,1.79533068331562805177e+09,'trainer','charge.reserve','people',NULL,NULL,'b36142f700e59b4cb59b064a95cc810f','{"key":"dp-sgd-1","largest":137438953472,"loss":"{\"mu\":0.1}","price":"{\"leak\":0.0,\"mu_squared\":0.010000000000000002}","what":"ranker","who":"trainer","why":"weekly"}','a5df1084c1a443c8bd7d6a488f8175e53ebada2969e142f7293b231fb5d45373','ec203689469776809e770ec5334df5a737f76652412e05cf2029b322c8fba405');
INSERT INTO "audit" VALUES(26,1.79533068332870101926e+09,'trainer','charge.commit','people',NULL,NULL,'37c2f9192dbedfd443bdec478d20d66d','{"key":"dp-sgd-1"}','ec203689469776809e770ec5334df5a737f76652412e05cf2029b322c8fba405','344186a90963c809f04859570bf3c7a78cbe5ebb9eab9d60b045e993502d6195');
INSERT INTO "audit" VALUES(27,1.7953306833552017212e+09,'trainer','charge.reserve','people',NULL,NULL,'de27c77602995846f298a341b4a03ef1','{"key":"dp-sgd-2","largest":137438953472,"loss":"{\"rho\":0.001}","price":"{\"leak\":0.0,\"mu_squared\":0.0037183309503531843}","what":"ranker","who":"trainer","why":"weekly"}','344186a90963c809f04859570bf3c7a78cbe5ebb9eab9d60b045e993502d6195','6b320ce5cff364e200f3e89ed5210576a51eee039fe7ca1ba93f9642e8d80007');
INSERT INTO "audit" VALUES(28,1.79533068336816906932e+09,'test','run.start','people','2af4a6e269e4',NULL,'29bcf18cf4017a893d5619669f9cb22e','{"accounting":"individual","format":1,"key_commitment":"35952bf972fbd3a8da6b6f37484435d721754608f93d216694b2e37cd99c58eb","most":274877906944,"noise_source":"secure","plan":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","plan_digest":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","planned":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","pledged":"c5b42308c71c40a6fd706d061912dee5fd7dc7cf6e9297875d6d99c049948f46","price":"{\"leak\":0.0,\"mu_squared\":0.04000000000000001}","rounds":3,"strategy":null,"trust_node_ids":false}','6b320ce5cff364e200f3e89ed5210576a51eee039fe7ca1ba93f9642e8d80007','a1ad615330a2df2a058ae503583c98221faf264b6d60d4aeb829adb7e93880bd');
INSERT INTO "audit" VALUES(29,1.79533068337949228282e+09,'run 2af4a6e269e4','round.open','people','2af4a6e269e4',0,'c2b79d71c09300f38b3e20ecc244643c','{"attempt":0,"cohort":"850b40c31538e69482c8b3df82007417140629ba16b38978a7ef7f05a3e21a6b","cohort_size":2,"noise_row":0}','a1ad615330a2df2a058ae503583c98221faf264b6d60d4aeb829adb7e93880bd','3051ce5dd644580d2d44b4481af47e07ea7a6f069d7e0ea9c12ed8043d6211a7');
INSERT INTO "audit" VALUES(30,1.79533068339028692244e+09,'run 2af4a6e269e4','round.commit','people','2af4a6e269e4',0,'745b302f694a16347514af2d739a46b9','{"attempt":0,"charges":"f976b84a6792a2ba0959787a04b09482a1b8c68d44c7aefe7751b1b66629e0dd","checkpoint":"4e07408562bedb8b60ce05c1decfe3ad16b72230967de01f640b7e4729b49fce","epsilon":0.8341175486240524,"noise_row":0,"nonce":"06060606060606060606060606060606","participant_count":1,"participants":"fa1c3c6acace2b51760a1764994cbef2af8aca213f79fffd5b6f2f77e293c036","rejects":{},"reports":0,"spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","statistics":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}','3051ce5dd644580d2d44b4481af47e07ea7a6f069d7e0ea9c12ed8043d6211a7','e39d9cd03d1d2e10c27f168b3b59e138dcbc628b8ad371e608518ac1b1e656e3');
INSERT INTO "audit" VALUES(31,1.7953306833980927467e+09,'run 2af4a6e269e4','run.interrupt','people','2af4a6e269e4',NULL,'5315db377a089bfd3f57b1f71f9928b4','{"message":""}','e39d9cd03d1d2e10c27f168b3b59e138dcbc628b8ad371e608518ac1b1e656e3','8feca5dd5558b8feb6c41378b597fe18314d6cbe56e2e3d845db8e71ea5c08d0');
INSERT INTO "audit" VALUES(32,1.79533068341195273394e+09,'test','run.start','people','6ab15fa7c536',NULL,'2106a7f6e86771e8fc67754d044c4442','{"accounting":"worst-case","format":1,"key_commitment":"26c568cbb38aa5d6dbc89d17af935e6955fcfc75fdc61da9e7dd92b9495f10fe","largest":412316860416,"most":null,"noise_source":"secure","plan":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","plan_digest":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","planned":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","price":"{\"leak\":0.0,\"mu_squared\":0.04000000000000001}","rounds":3,"strategy":null,"trust_node_ids":false}','8feca5dd5558b8feb6c41378b597fe18314d6cbe56e2e3d845db8e71ea5c08d0','1914f3e19329b3c1023168b43d51ceaef25cdba9a37cac76c5f6ab7e293e2a24');
INSERT INTO "audit" VALUES(33,1.79533068342326140396e+09,'run 6ab15fa7c536','round.open','people','6ab15fa7c536',0,'675d612351d7386e6873a0f4c2f9ab24','{"attempt":0,"cohort":"46d2a2090f3ec57a778cdc017b0204dd3ffc97744a7e5d4e6c789b4b600073e2","cohort_size":2,"noise_row":0}','1914f3e19329b3c1023168b43d51ceaef25cdba9a37cac76c5f6ab7e293e2a24','12f6114da854a6e1b1cc92041a2781b01e84c10e461cd6e2db97149b162e1b40');
INSERT INTO "audit" VALUES(34,1.79533068343012857433e+09,'run 6ab15fa7c536','round.void','people','6ab15fa7c536',0,'efcf62394dd2099435d62356b034b6af','{"attempt":0,"reason":"too few","rejects":{"shape":2},"reports":1}','12f6114da854a6e1b1cc92041a2781b01e84c10e461cd6e2db97149b162e1b40','8feabf62c6f44808a234f923a57f72400307568d4879fbbcf463161f4628718c');
INSERT INTO "audit" VALUES(35,1.79533068343798446657e+09,'run 6ab15fa7c536','round.open','people','6ab15fa7c536',0,'decdceaa3ccc88746551f6f4125e3cee','{"attempt":1,"cohort":"32a46748a9dc0aabef51e08210130c638172505c64dbf30b8e41b121e8f9ad9c","cohort_size":2,"noise_row":0}','8feabf62c6f44808a234f923a57f72400307568d4879fbbcf463161f4628718c','f6ce8e498abdff6826c85fe64c71317c087eb6ad557172675c4e57713efb97ac');
INSERT INTO "audit" VALUES(36,1.79533068344607162469e+09,'run 6ab15fa7c536','round.commit','people','6ab15fa7c536',0,'0e725ed076f0c8d106c037db92f78e0f','{"attempt":1,"checkpoint":"d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa","epsilon":0.8341175486240524,"noise_row":0,"nonce":"09090909090909090909090909090909","participant_count":1,"participants":"b1fe78d56a7c62bb11dc790717a621b63e48f9689da5a720564dcd0d1bfb0ecf","rejects":{},"reports":0,"spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","statistics":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}','f6ce8e498abdff6826c85fe64c71317c087eb6ad557172675c4e57713efb97ac','7a85c87e49d9bc14204cacf4e5ae0bd219f3d3a8d6d9dd8229f781d0e2f861e8');
INSERT INTO "audit" VALUES(37,1.79533068345768213273e+09,'run 6ab15fa7c536','users.register','people','6ab15fa7c536',NULL,'6fede194ef3da33708f5241fe8f71378','{"count":10,"first":40,"hashes":"333b0562ac32d8e37e07559a480e48d2d0a90e3497cffe9d8d7881999bd29030","pledged":{"2af4a6e269e4":274877906944}}','7a85c87e49d9bc14204cacf4e5ae0bd219f3d3a8d6d9dd8229f781d0e2f861e8','fb4efe51653fa5e2a5212658b2b01fb1342337b0ab1f6e62f8b44b7fc7fdb51c');
INSERT INTO "audit" VALUES(38,1.79533068346407270431e+09,'run 6ab15fa7c536','round.open','people','6ab15fa7c536',1,'d5a5036c5395b56f1ab9ff2f875d1236','{"attempt":0,"cohort":"2745bb9e9a5bde592558d3361d9f49ca8ac3e0292421d84ae954a11a60548144","cohort_size":2,"noise_row":1}','fb4efe51653fa5e2a5212658b2b01fb1342337b0ab1f6e62f8b44b7fc7fdb51c','44026f4d4a3ab3fb968d12588eeb7edad9bf06fea25390a49ba51f9ca9ed697f');
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
INSERT INTO "charges" VALUES(1,'dp-sgd-1','trainer','ranker','weekly','{"mu":0.1}','{"leak":0.0,"mu_squared":0.010000000000000002}','committed',1.79533068331562805177e+09,1.79533068332870101926e+09);
INSERT INTO "charges" VALUES(1,'dp-sgd-2','trainer','ranker','weekly','{"rho":0.001}','{"leak":0.0,"mu_squared":0.0037183309503531843}','reserved',1.7953306833552017212e+09,NULL);
CREATE TABLE head (
	id INTEGER NOT NULL, 
	ledger VARCHAR(32) NOT NULL, 
	count BIGINT NOT NULL, 
	hash VARCHAR(64) NOT NULL, signed TEXT, 
	CONSTRAINT pk_head PRIMARY KEY (id), 
	CONSTRAINT ck_head_one_row CHECK (id = 1)
);
INSERT INTO "head" VALUES(1,'d3187c2695bf80043aa6d4c0eecb997d',38,'44026f4d4a3ab3fb968d12588eeb7edad9bf06fea25390a49ba51f9ca9ed697f',NULL);
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
INSERT INTO "leases" VALUES(1,'',2,8,1.79533068322217130661e+09,30.0);
INSERT INTO "leases" VALUES(2,'',2,3,1.7953306832632832527e+09,30.0);
INSERT INTO "leases" VALUES(3,'',2,3,1.79533068330221605305e+09,30.0);
INSERT INTO "leases" VALUES(4,'',2,3,1.7953306833980927467e+09,30.0);
INSERT INTO "leases" VALUES(5,'test',1,6,1.79533068346407270431e+09,30.0);
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
INSERT INTO "populations" VALUES(1,'people',5.0,1.0e-06,'zero_out','user',0,'open',X'F1BF1774CB5134322A511611644CFDB3',50,'{"mu_squared":0.16000000000000003,"sampled":[]}',1.79533068301905584336e+09,'officer',8.67361737988403508001e-25,5.0,1.0e-06,NULL,NULL,NULL,0,'individual');
INSERT INTO "populations" VALUES(2,'others',1.0,1.0e-06,'add_remove','user',0,'closed',X'026D00BB49B8AA1D605D1AF75A2A72A3',0,'{"mu_squared":0.0,"sampled":[]}',1.79533068310851120943e+09,'officer',1.0e-07,1.0,1.0e-06,NULL,NULL,NULL,0,'worst-case');
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
INSERT INTO "rounds" VALUES(1,1,0,0,0,'committed',NULL,3,9,3,'{"mu_squared":0.04,"sampled":[]}',8.34117548624052407291e-01,'5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9','{"accuracy":0.5}','{"nan":1}','',1.79533068317657256126e+09,1.79533068318776321413e+09,'00000000000000000000000000000000');
INSERT INTO "rounds" VALUES(2,1,1,0,1,'committed',NULL,2,9,2,'{"mu_squared":0.08,"sampled":[]}',1.21196745273807415799e+00,'6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b','{"accuracy":0.5}','{"nan":1}','',1.79533068319931697846e+09,1.7953306832076814175e+09,'01010101010101010101010101010101');
INSERT INTO "rounds" VALUES(3,1,2,0,2,'committed',NULL,1,9,1,'{"mu_squared":0.08,"sampled":[]}',1.21196745273807415799e+00,'d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35','{"accuracy":0.5}','{"nan":1}','',1.79533068321324110029e+09,1.79533068321842241284e+09,'02020202020202020202020202020202');
INSERT INTO "rounds" VALUES(4,2,0,0,0,'committed',NULL,2,0,2,'{"mu_squared":0.04000000000000001,"sampled":[]}',8.34117548624052407291e-01,'6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b','{}','{}','',1.79533068325224375721e+09,1.79533068325970458986e+09,'07070707070707070707070707070707');
INSERT INTO "rounds" VALUES(5,3,0,0,0,'committed',NULL,2,0,1,'{"mu_squared":0.04000000000000001,"sampled":[]}',8.34117548624052407291e-01,'d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35','{}','{}','',1.7953306832874720096e+09,1.79533068329844260222e+09,'08080808080808080808080808080808');
INSERT INTO "rounds" VALUES(6,4,0,0,0,'committed',NULL,2,0,1,'{"mu_squared":0.04000000000000001,"sampled":[]}',8.34117548624052407291e-01,'4e07408562bedb8b60ce05c1decfe3ad16b72230967de01f640b7e4729b49fce','{}','{}','',1.79533068337949228282e+09,1.79533068339028692244e+09,'06060606060606060606060606060606');
INSERT INTO "rounds" VALUES(7,5,0,0,0,'void',NULL,2,1,0,NULL,NULL,NULL,'{}','{"shape":2}','too few',1.79533068342326140396e+09,1.79533068343012857433e+09,NULL);
INSERT INTO "rounds" VALUES(8,5,0,1,0,'committed',NULL,2,0,1,'{"mu_squared":0.04000000000000001,"sampled":[]}',8.34117548624052407291e-01,'d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa','{}','{}','',1.79533068343798446657e+09,1.79533068344607162469e+09,'09090909090909090909090909090909');
INSERT INTO "rounds" VALUES(9,5,1,0,1,'open',X'0178DAE36004000013000A',2,0,0,NULL,NULL,NULL,'{}','{}','',1.79533068346407270431e+09,NULL,NULL);
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
INSERT INTO "runs" VALUES(1,'03d92f86a6a8',1,'{"privacy": {"adjacency": "zero_out"}, "run": {"rounds": 4}}','23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',3,'{"mu_squared":0.6400000000000001,"sampled":[]}','{"mu_squared":0.08,"sampled":[]}','secure','10b432866871159ecd28ebf51122610efdf4bf9ecd8ac50a35d479ac68f32be5',0,'done',NULL,'',3,'d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35',1.79533068315175056454e+09,'test',1.79533068322217130661e+09,'{"leak":0.0,"mu_squared":0.6400000000000001}',1,NULL,'worst-case',NULL);
INSERT INTO "runs" VALUES(2,'8efa36c467cd',1,'{"privacy": {"adjacency": "zero_out"}, "run": {"rounds": 4}}','23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',3,'{"mu_squared":0.04000000000000001,"sampled":[]}','{"mu_squared":0.04000000000000001,"sampled":[]}','secure','7d5cad34059cac6a8fecd7e22589d4d72f46f969802133e25f2aae5551a0d5df',0,'stopped',NULL,'',1,'6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b',1.79533068323796892165e+09,'test',1.7953306832632832527e+09,'{"leak":0.0,"mu_squared":0.04000000000000001}',1,NULL,'individual',274877906944);
INSERT INTO "runs" VALUES(3,'3fc54ae7d030',1,'{"privacy": {"adjacency": "zero_out"}, "run": {"rounds": 4}}','23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',3,'{"mu_squared":0.04000000000000001,"sampled":[]}','{"mu_squared":0.04000000000000001,"sampled":[]}','secure','ae36a53600e8dcfe535336281861a6b7bea7b939eebe13facca1136412d0e692',0,'stopped',NULL,'',1,'d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35',1.79533068327977943417e+09,'test',1.79533068330221605305e+09,'{"leak":0.0,"mu_squared":0.04000000000000001}',1,NULL,'individual',274877906944);
INSERT INTO "runs" VALUES(4,'2af4a6e269e4',1,'{"privacy": {"adjacency": "zero_out"}, "run": {"rounds": 4}}','23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',3,'{"mu_squared":0.04000000000000001,"sampled":[]}','{"mu_squared":0.04000000000000001,"sampled":[]}','secure','35952bf972fbd3a8da6b6f37484435d721754608f93d216694b2e37cd99c58eb',0,'interrupted',NULL,'',1,'4e07408562bedb8b60ce05c1decfe3ad16b72230967de01f640b7e4729b49fce',1.79533068336816906932e+09,'test',NULL,'{"leak":0.0,"mu_squared":0.04000000000000001}',1,NULL,'individual',274877906944);
INSERT INTO "runs" VALUES(5,'6ab15fa7c536',1,'{"privacy": {"adjacency": "zero_out"}, "run": {"rounds": 4}}','23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',3,'{"mu_squared":0.04000000000000001,"sampled":[]}','{"mu_squared":0.04000000000000001,"sampled":[]}','secure','26c568cbb38aa5d6dbc89d17af935e6955fcfc75fdc61da9e7dd92b9495f10fe',0,'running',NULL,'',1,'d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa',1.79533068341195273394e+09,'test',NULL,'{"leak":0.0,"mu_squared":0.04000000000000001}',1,NULL,'worst-case',NULL);
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
INSERT INTO "tokens" VALUES('68d53d321010','page','55a15ab9c8f21cd233600d036c4b1860d8b2974d0c5bdd31cb1e2364be9472c3','read',1.79533068313130235674e+09,'officer',NULL,1.79533068314207077025e+09,NULL);
INSERT INTO "tokens" VALUES('a314916dfbaf','office','64028e07e64e5c04a8bc16e5ce94ec73a71beb3d51e52d5ff6caf1c9f42a278b','read admin',1.79533068313818979259e+09,'officer',NULL,NULL,NULL);
CREATE TABLE users (
	population_id INTEGER NOT NULL, 
	first BIGINT NOT NULL, 
	count INTEGER NOT NULL, 
	hashes BLOB NOT NULL, 
	CONSTRAINT pk_users PRIMARY KEY (population_id, first), 
	CONSTRAINT fk_users_population_id FOREIGN KEY(population_id) REFERENCES populations (id)
);
INSERT INTO "users" VALUES(1,0,40,X'63D55BAC67C49F5205BB89B82613AEE6BB677716B1CEF863E78C72AC9491C8710FCE052C82AA0E337BBE4D0D7C376ACB57DF0E5A56203BD01987B7F80E52C463D828883382E56310E20A5F18988BC5D72E4725A7475C88A5A81206D3083B59B170494A14345F79B67151CF73F4A5F23ED718C1DE7571D4BCE963589D110067514B8F497189A2643499535826683288C6D96033426D3EC3B779C6F9E59883184350BADD6B0A4F94526AE1DC9C7F946A1B3B5F8DE5CDCC8230348C871512971D115102C97A6C22C31BB12054F3A8A3D9365DACBE6BE6E42290AC1E6F0C4E3384D345E6D61D1489C98237D49E824B58B794D59F57A4B4E31DC4BDB8039DC38249A738407385688DC4763A00081A6BB138630F828FBCFC2FCBE325789C60A313640AC7C41DD70B2A2CD7468029AC32B2AB113ED65B8230DB7302C42471E21747B773');
INSERT INTO "users" VALUES(1,40,10,X'4C3DA98F3C5AEE79FF64A79B9311CE27F88A8EE2950313C0925DA91F1E247AC826B75ECAE0C16291C40FE3F98A74E1DB4D8ED363AB733C5098E51F54714CD5EC756DD4A142284B77DA874DCF1AF66A3A');
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
COMMIT;
